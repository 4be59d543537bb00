package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
)

const sockText = `The command that run started finds a unix socket in CLAIM_SOCK. Each request and each
reply is one line; a connection takes any number of them, one after the other:

  check           ok MILLISECONDS, how long the claim lasts unless it is renewed,
                  at most until --max-hold; lost REASON; or unknown REASON after a
                  step of the wall clock, until etcd was asked
  note TEXT       ok once etcd has the note, which ls and explain show; lost REASON;
                  unknown REASON if etcd did not answer; or error REASON

check does no I/O beyond the socket. Ask it right before each effect. The claim can
end between the reply and the effect: send FENCING_TOKEN to what can refuse it.`

// sock answers the command about its claim.
type sock struct {
	listener net.Listener
	dir      string
	claim    *holding
	timeout  time.Duration // of a note
	ctx      context.Context
	cancel   context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// sockConns is how many connections are served at a time; others wait.
const sockConns = 64

func listenSock(claim *holding, timeout time.Duration) (*sock, error) {
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "claimctl-") // for this user alone
	if err != nil {                                                     // it may be that of another login
		dir, err = os.MkdirTemp("", "claimctl-")
	}
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		_ = os.RemoveAll(dir) // the error is what matters
		return nil, err
	}
	s := &sock{listener: l, dir: dir, claim: claim, timeout: timeout, conns: map[net.Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

func (s *sock) path() string { return s.listener.Addr().String() }

// close ends all connections and removes the socket.
func (s *sock) close() {
	s.cancel()
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	_ = os.RemoveAll(s.dir) // in a directory for temporary files
}

func (s *sock) accept() {
	slots := make(chan struct{}, sockConns)
	for {
		slots <- struct{}{}
		c, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			<-slots
			time.Sleep(10 * time.Millisecond) // out of file descriptors
			continue
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		if s.ctx.Err() != nil { // close may have missed it
			_ = c.Close()
		}
		s.wg.Go(func() {
			defer func() { <-slots }()
			s.serve(c)
		})
	}
}

func (s *sock) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, 512), etcdclaims.MaxNoteBytes+16)
	for lines.Scan() {
		if _, err := fmt.Fprintln(c, s.reply(lines.Text())); err != nil {
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		_, _ = fmt.Fprintln(c, "error the line is too long")
	}
}

func (s *sock) reply(request string) string {
	verb, text, _ := strings.Cut(request, " ")
	switch verb {
	case "check":
		switch err := s.claim.Check(); {
		case errors.Is(err, etcdclaims.ErrUnknown):
			return "unknown " + clean(err.Error()) // run goes on, too
		case err != nil:
			return "lost " + clean(err.Error())
		}
		return fmt.Sprintf("ok %d", s.claim.left().Milliseconds())
	case "note":
		ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
		defer cancel()
		switch err := s.claim.Note(ctx, []byte(text)); {
		case errors.Is(err, etcdclaims.ErrLost):
			return "lost " + clean(err.Error())
		case err != nil && isUnreachable(err):
			return "unknown " + clean(err.Error())
		case err != nil:
			return "error " + clean(err.Error())
		}
		return "ok"
	}
	return fmt.Sprintf("error unknown request %q", verb)
}

// ask sends one request to the socket in the environment.
func ask(request string, timeout time.Duration) (string, error) {
	path := os.Getenv("CLAIM_SOCK")
	if path == "" {
		return "", usageError("CLAIM_SOCK is not set: this is for commands that claimctl run started")
	}
	c, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return "", &exitError{exitLost, fmt.Errorf("claimctl run has ended: %w", err)}
	}
	defer func() { _ = c.Close() }() // the reply was read
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, request); err != nil {
		return "", &exitError{exitLost, fmt.Errorf("claimctl run has ended: %w", err)}
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", &exitError{exitUnreachable, fmt.Errorf("claimctl run does not answer: %w", err)}
	}
	return strings.TrimSuffix(reply, "\n"), nil
}

// checkView is the answer to check.
type checkView struct {
	Remaining int64 `json:"remainingMilliseconds"`
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", GroupID: groupRun, Args: cobra.NoArgs, Short: "Within run: check that the claim is still held",
		Long: "Exit with 0 if the claim of the claimctl run that started this command is held, and\nwith 76 if it is lost. 69 means that the wall clock was set, and that etcd is being\nasked whether the claim is held: ask again.\n\n" + sockText,
		RunE: func(*cobra.Command, []string) error {
			reply, err := ask("check", a.commandTimeout)
			if err != nil {
				return err
			}
			if reason, is := strings.CutPrefix(reply, "unknown "); is {
				return &exitError{exitUnreachable, errors.New(reason)}
			}
			var v checkView
			if _, err := fmt.Sscanf(reply, "ok %d", &v.Remaining); err != nil {
				return &exitError{exitLost, errors.New(strings.TrimPrefix(reply, "lost "))}
			}
			if a.format != formatTable {
				return a.printLine(v)
			}
			a.say("held, for %s unless it is renewed", time.Duration(v.Remaining)*time.Millisecond)
			return nil
		},
	}
}

func (a *app) noteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "note TEXT", GroupID: groupRun, Args: cobra.ExactArgs(1), Short: "Within run: set the note on the claim",
		Long: "Set the note on the claim of the claimctl run that started this command, which ls and\nexplain show. Each note is a write to etcd.\n\n" + sockText,
		RunE: func(_ *cobra.Command, args []string) error {
			if strings.ContainsAny(args[0], "\n\r") {
				return usageError("note: the text has more than one line")
			}
			reply, err := ask("note "+args[0], a.commandTimeout)
			if err != nil {
				return err
			}
			verdict, reason, _ := strings.Cut(reply, " ")
			switch verdict {
			case "ok":
				return nil
			case "lost":
				return &exitError{exitLost, errors.New(reason)}
			case "unknown":
				return &exitError{exitUnreachable, errors.New(reason)}
			}
			return errors.New(reason)
		},
	}
}
