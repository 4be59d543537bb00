package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Exit codes. They are a contract: see exitCodesText.
const (
	exitFailure     = 1
	exitUsage       = 64
	exitUnreachable = 69
	exitBusy        = 75
	exitLost        = 76
	exitKilled      = 77
	exitTimeout     = 124
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128
)

const exitCodesText = `Exit codes of claimctl. They do not change within a major version.

  0    The command did what it says. Of run: the command exited with 0, or its
       work was done before (--once).
  1    Failed for another reason: refused, not found, permission denied. Of
       doctor: there are warnings.
  2    Of doctor: there are errors.
  64   Wrong usage. Nothing was sent to etcd.
  69   etcd is unreachable, or the outcome of a request is not known.
  75   The key is held, or others wait for it, or failed work is not due yet.
       The command did not run.
  76   The claim was lost, or about to be, and the command ended after the
       signal.
  77   The claim was lost, or about to be, and the command had to be killed.
  124  The key was not free within --wait, so the command did not run. Of watch:
       the condition did not come true within --timeout.
  126  The command cannot be executed.
  127  The command was not found.
  128+n  Of run: the command was ended by signal n, or claimctl received signal n
       before the command ran. Of watch --until: claimctl received signal n.

Otherwise run exits as its command does. A command can exit with one of these
codes itself: run prints a line to the standard error for each code of its own.
--exit-code busy=0 and so on replaces the codes of busy, timeout, lost, killed,
unreachable and done.`

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The contract of the exit codes", Long: exitCodesText}
}

// exitError ends claimctl with a code. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// usageIf returns a usage error if something about the arguments is wrong.
func usageIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return usageError(format, args...)
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, etcdclaims.ErrInvalidKey):
		return exitUsage
	case errors.Is(err, etcdclaims.ErrRefused):
		return exitFailure
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, work.ErrBackoff):
		return exitBusy
	case isUnreachable(err):
		return exitUnreachable
	}
	return exitFailure
}

// isUnreachable reports whether an error means that etcd did not answer.
func isUnreachable(err error) bool {
	if errors.Is(err, errNoConnection) || errors.Is(err, etcdclaims.ErrUnreachable) ||
		errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var coded interface{ GRPCStatus() *status.Status }
	if errors.As(err, &coded) {
		code := coded.GRPCStatus().Code()
		return code == codes.Unavailable || code == codes.DeadlineExceeded
	}
	return false
}

// report prints an error and returns the exit code.
func (a *app) report(err error) int {
	code := codeOf(err)
	if err != nil && !a.started {
		code = exitUsage
	}
	var exit *exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return code
	}
	text := err.Error()
	if code == exitUnreachable && isUnreachable(err) && !errors.Is(err, etcdclaims.ErrUnknown) {
		text += fmt.Sprintf("; endpoints: %s (--endpoints or ETCDCTL_ENDPOINTS)", strings.Join(a.etcd.Endpoints, ","))
	}
	a.complain(text, code)
	return code
}

// remark prints what is no error to the standard error, as JSON where the output is JSON.
func (a *app) remark(note string, groups ...string) {
	a.printError(note, struct {
		Note   string   `json:"note"`
		Groups []string `json:"groups,omitempty"`
	}{note, groups})
}

// complain prints an error as a line of text, or as JSON where the output is JSON.
func (a *app) complain(text string, code int) {
	text = strings.TrimPrefix(text, "etcdclaims: ")
	a.printError(text, struct {
		Error string `json:"error"`
		Code  int    `json:"code"`
	}{text, code})
}

// printError prints a line to the standard error: the value where the output is JSON.
func (a *app) printError(text string, v any) {
	line := "claimctl: " + clean(text)
	if a.format == formatJSON || a.format == formatLines {
		if text, err := json.Marshal(v); err == nil {
			line = string(text)
		}
	}
	_, _ = fmt.Fprintln(a.err, line)
}
