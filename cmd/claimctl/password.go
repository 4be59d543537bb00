package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"
)

// login returns the name of --user and its password: that of a file before any other. It asks for a password
// that is not given if a person can answer: the standard input is a terminal then.
func (a *app) login() (*clientv3.AuthConfig, error) {
	if a.user == "" {
		return nil, nil
	}
	if a.passwordFile != "" {
		text, err := os.ReadFile(a.passwordFile)
		if err != nil {
			return nil, usageError("--password-file: %w", err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if a.password = strings.TrimSuffix(first, "\r"); a.password == "" {
			return nil, usageError("--password-file %s: the first line is empty", a.passwordFile)
		}
	}
	if a.password != "" {
		return &clientv3.AuthConfig{Username: a.user, Password: a.password}, nil
	}
	name, password, given := strings.Cut(a.user, ":")
	if !given {
		terminal, ok := a.in.(*os.File)
		if !ok || a.completing || !term.IsTerminal(int(terminal.Fd())) {
			return nil, usageError("--user %q has no password: use --password-file or ETCDCTL_PASSWORD", a.user)
		}
		var err error
		if password, err = askPassword(terminal, a.err, name); err != nil {
			return nil, err
		}
		a.password = password // a command that connects twice asks once
	}
	return &clientv3.AuthConfig{Username: name, Password: password}, nil
}

// askPassword asks a person at a terminal, which does not show what is typed. A signal that
// interrupts leaves the terminal as it was.
func askPassword(terminal *os.File, prompt io.Writer, name string) (string, error) {
	if _, err := fmt.Fprintf(prompt, "Password of %s: ", name); err != nil {
		return "", err
	}
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the password of %s: %w", name, err)
	}
	signals, typed := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, interrupts...)
	defer signal.Stop(signals)
	defer close(typed)
	go func() {
		select {
		case sig := <-signals:
			_ = term.Restore(fd, before)
			os.Exit(exitSignal + signalNumber(sig))
		case <-typed:
		}
	}()
	password, err := term.ReadPassword(fd)
	_, _ = fmt.Fprintln(prompt) // the person's newline is not shown either
	if err != nil {
		return "", fmt.Errorf("read the password of %s: %w", name, err)
	}
	if len(password) == 0 {
		return "", usageError("--user %q has no password, and none was typed", name)
	}
	return string(password), nil
}
