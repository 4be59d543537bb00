package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// personsTerminal is one that a test looks at as a person does.
type personsTerminal struct {
	*testing.T
	person, program *os.File

	mu    sync.Mutex
	shown bytes.Buffer
}

func openTerminal(t *testing.T) *personsTerminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	w := &personsTerminal{T: t, person: person, program: program}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(w, person) // until the last program's end is closed
	}()
	t.Cleanup(func() {
		_ = program.Close()
		<-read
		_ = person.Close()
	})
	return w
}

// Write takes what the terminal shows.
func (w *personsTerminal) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown.Write(b)
}

func (w *personsTerminal) shows(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.shown.String(), what)
}

// echoes reports whether the terminal shows what is typed.
func (w *personsTerminal) echoes() bool {
	w.Helper()
	is, err := unix.IoctlGetTermios(int(w.program.Fd()), unix.TCGETS)
	if err != nil {
		w.Fatal(err)
	}
	return is.Lflag&unix.ECHO != 0
}

// types types a line when the terminal does not show it.
func (w *personsTerminal) types(line string) {
	w.Helper()
	eventually(w.T, "nothing is echoed", func() bool { return !w.echoes() })
	if _, err := w.person.WriteString(line + "\n"); err != nil {
		w.Fatal(err)
	}
}

// A person at a terminal is asked for a password, once, and it is not shown.
func TestPasswordIsAskedFor(t *testing.T) {
	t.Parallel()
	w := openTerminal(t)
	a := &app{in: w.program, err: w.program, connection: connection{user: "root"}}
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		w.types("s3cret")
	}()
	for range 2 {
		auth, err := a.login()
		if err != nil || auth.Username != "root" || auth.Password != "s3cret" {
			t.Errorf("%+v %v", auth, err)
		}
	}
	<-typed
	if _, err := w.program.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end is shown", func() bool { return w.shows("end") })
	if !w.shows("Password of root: ") || w.shows("s3cret") || !w.echoes() {
		t.Errorf("the terminal shows %q", w.shown.String())
	}
	a = &app{in: w.program, err: w.program, connection: connection{user: "root"}}
	typed = make(chan struct{})
	go func() {
		defer close(typed)
		w.types("")
	}()
	if auth, err := a.login(); err == nil {
		t.Errorf("an empty password: %+v", auth)
	}
	<-typed
}

// A person who does not want to type a password interrupts the command, which leaves the
// terminal as it was.
func TestPasswordIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"ls"}, {"watch"}, {"run", "k", "--", "true"}} {
		w := openTerminal(t)
		cmd := exec.Command(program(t), append(args[:1:1], append([]string{"--user", "root"}, args[1:]...)...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		cmd.Stdin, cmd.Stderr = w.program, w.program
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it asks", func() bool { return w.shows("Password") && !w.echoes() })
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitSignal+int(syscall.SIGINT) || !w.echoes() {
			t.Errorf("%s: %v, the terminal echoes: %v", args[0], err, w.echoes())
		}
	}
}

// A shell that completes a key asks nobody.
func TestCompletionAsksForNoPassword(t *testing.T) {
	t.Parallel()
	w := openTerminal(t)
	for _, args := range [][]string{{"release", ""}, {"group", "show", ""}} {
		cmd := exec.Command(program(t), append([]string{"__complete"}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "ETCDCTL_USER=root")
		cmd.Stdin, cmd.Stderr = w.program, w.program
		if out, err := cmd.Output(); err != nil || strings.Contains(string(out), "Password") || w.shows("Password") {
			t.Errorf("%v: %s", err, out)
		}
	}
}
