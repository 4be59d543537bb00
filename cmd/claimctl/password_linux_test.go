package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a terminal: where a person sits, and what a program sees.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// A person at a terminal is asked for a password, once, and it is not shown.
func TestPasswordIsAskedFor(t *testing.T) {
	t.Parallel()
	person, program := openTerminal(t)
	var prompt bytes.Buffer
	a := &app{in: program, err: &prompt, connection: connection{user: "root"}}
	if _, err := person.WriteString("s3cret\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		auth, err := a.login()
		if err != nil || auth.Username != "root" || auth.Password != "s3cret" {
			t.Errorf("%+v %v", auth, err)
		}
	}
	if prompt.String() != "Password of root: \n" {
		t.Errorf("the prompt is %q", prompt.String())
	}
	if _, err := program.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	if shown, err := bufio.NewReader(person).ReadString('d'); err != nil || strings.Contains(shown[strings.LastIndex(shown, "\n")+1:], "s3cret") {
		t.Errorf("the terminal shows %q, %v", shown, err)
	}
	a = &app{in: program, err: &prompt, connection: connection{user: "root"}}
	if _, err := person.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if auth, err := a.login(); err == nil {
		t.Errorf("an empty password: %+v", auth)
	}
}
