//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// script is a program that carries out each line that it reads, and prints a line: ok, what the
// line assigned to out, or its error.
const script = `
import sys
from claims import *
from gate import SCHEMA, admit, parse
claims = Claims(sys.argv[1])
for line in sys.stdin:
    try:
        out = 'ok'
        exec(line)
        print(out, flush=True)
    except Exception as e:
        print(type(e).__name__, e, flush=True)
`

// python is a program in Python that holds claims.
type python struct {
	*process
	lines io.Writer
	said  *bufio.Scanner
}

// python starts a program that uses the client of the examples.
func (w *world) python(socket string) *python {
	w.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		w.Skip("python3 is not installed")
	}
	p := &python{process: &process{T: w.T, done: make(chan struct{})}}
	p.cmd = exec.Command(path, "-c", script, socket)
	p.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH=../../examples/python:../../examples/gates/python")
	p.cmd.Stderr = &p.err
	in, err := p.cmd.StdinPipe()
	w.noErr(err)
	out, write, err := os.Pipe()
	w.noErr(err)
	p.cmd.Stdout = write
	p.lines, p.said = in, bufio.NewScanner(out)
	w.noErr(p.cmd.Start())
	_ = write.Close()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // it is killed
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = out.Close()
	})
	return p
}

// types sends a line.
func (p *python) types(line string) {
	p.Helper()
	if _, err := io.WriteString(p.lines, line+"\n"); err != nil {
		p.Fatal(err)
	}
}

// says wants what the program prints next to begin with a text.
func (p *python) says(want string) {
	p.Helper()
	if !p.said.Scan() || !strings.HasPrefix(p.said.Text(), want) {
		p.Fatalf("it printed %q, %v, want %q: %s", p.said.Text(), p.said.Err(), want, p.err.String())
	}
}

// does sends a line, and wants what the program prints.
func (p *python) does(line, want string) {
	p.Helper()
	p.types(line)
	p.says(want)
}

// daemon starts "claimctl serve" on a socket.
func (w *world) daemon(flags ...string) (p *process, socket string) {
	w.Helper()
	dir, err := os.MkdirTemp("", "serve")
	w.noErr(err)
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	p = w.start(program(w.T), append([]string{"serve", "--socket", socket}, flags...)...)
	eventually(w.T, "the socket", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p, socket
}

// bound is how long after the ttl the lease of a program that is gone may last, on a busy machine.
const bound = 4 * time.Second

// Programs in Python exclude each other, and lose what they hold when they die or stand still.
func TestServePython(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	written := strings.TrimSuffix(w.prefix, "/") + "-written"
	server, socket := w.daemon()
	a, b := w.python(socket), w.python(socket)

	a.does(`claim = claims.acquire('k', ttl=3, note='importing')`, "ok")
	b.does(`claims.acquire('k')`, "Problem 409 held: ")
	a.does(`claim.check(); claim.txn(put={'`+written+`': '1'})`, "ok")
	a.does(`out = parse(claim.token) == ('k', claim.fence)`, "True")

	// It is killed.
	killed := time.Now()
	a.signal(syscall.SIGKILL)
	b.does(`old, claim = None, claims.acquire('k', ttl=3, wait=30)`, "ok")
	if took := time.Since(killed); took > 3*time.Second+bound {
		t.Errorf("the claim of a program that was killed lasted %v", took)
	}

	// It stands still for longer than its ttl.
	b.does(`token = claim.token`, "ok")
	b.signal(syscall.SIGSTOP)
	stopped := time.Now()
	c := w.python(socket)
	c.does(`claim = claims.acquire('k', ttl=3, wait=30)`, "ok")
	if took := time.Since(stopped); took > 3*time.Second+bound {
		t.Errorf("the claim of a program that was stopped lasted %v", took)
	}
	b.types(`claim.txn(put={'` + written + `': 'late'})`)
	b.signal(syscall.SIGCONT)
	b.says("Problem 412 lost: ")
	b.does(`claim.check()`, "TimeoutError")
	c.does(`import sqlite3; db = sqlite3.connect(':memory:', isolation_level=None); db.execute(SCHEMA)`, "ok")
	c.does(`admit(db, 'k', claim.fence)`, "ok")
	c.does(`admit(db, 'k', claim.fence - 1)`, "Refused STALE_FENCE")
	if got, err := w.etcd.Get(t.Context(), written); err != nil || got.Count != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("the late write was carried out: %v, %v", got, err)
	}

	// A worker dies.
	c.does(`out = claims.enqueue('q', {'n': 1}, id='1')`, "True")
	b.does(`item, = claims.items('q', ttl=3, wait=30); out = item.payload, item.attempt`, "({'n': 1}, 1)")
	killed = time.Now()
	b.signal(syscall.SIGKILL)
	c.does(`item, = claims.items('q', ttl=3, wait=30); out = item.id, item.attempt`, "('1', 2)")
	if took := time.Since(killed); took > 3*time.Second+bound {
		t.Errorf("the item of a worker that was killed came back after %v", took)
	}
	c.does(`item.complete()`, "ok")

	// The server stops when the last claim is released.
	server.signal(syscall.SIGTERM)
	eventually(t, "the server refuses claims", func() bool {
		c.types(`claims.acquire('j').release()`)
		return c.said.Scan() && strings.HasPrefix(c.said.Text(), "Problem 503 stopping")
	})
	c.does(`claim.release()`, "ok")
	server.ends(0)
	w.isFree("k")
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// The connection of a watch is that of the kernel: it is closed when its program dies.
func TestServeConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, socket := w.daemon()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	post := func(path, body string) (int, func()) {
		resp, err := client.Post("http://localhost/v1/"+path, "application/json", strings.NewReader(body))
		w.noErr(err)
		return resp.StatusCode, func() { _ = resp.Body.Close() }
	}
	status, closes := post("claims", `{"key":"k","id":"00000000-0000-4000-8000-00000000000a","ttl_ms":60000}`)
	closes()
	watch, err := client.Get("http://localhost/v1/claims/00000000-0000-4000-8000-00000000000a/watch?hold=true")
	if err != nil || status != 201 || watch.StatusCode != 200 {
		t.Fatalf("%d, %+v, %v", status, watch, err)
	}
	if line, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil || line != `{"event":"held"}`+"\n" {
		t.Fatalf("%q, %v", line, err)
	}
	check := w.client("check")
	info := func(key string) etcdclaims.Info {
		i, err := check.Lookup(t.Context(), key)
		w.noErr(err)
		return i
	}
	_ = watch.Body.Close()
	eventually(t, "the key is free", func() bool { return !info("k").Held })

	// A program dies that waits in line.
	w.claim(check, "j")
	ctx, die := context.WithCancel(t.Context())
	body := strings.NewReader(`{"key":"j","wait_ms":60000}`)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost/v1/claims", body)
	w.noErr(err)
	died := make(chan struct{})
	go func() {
		defer close(died)
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("got %d", resp.StatusCode)
		}
	}()
	eventually(t, "it is in line", func() bool { return info("j").Waiting == 1 })
	die()
	<-died
	eventually(t, "its place is free", func() bool { return info("j").Waiting == 0 })

	// A server that is killed frees its keys by the end of their lease.
	_, closes = post("claims", `{"key":"k","ttl_ms":1000}`)
	closes()
	server.signal(syscall.SIGKILL)
	claim, err := check.Acquire(t.Context(), "k")
	w.noErr(err)
	w.noErr(claim.Release(t.Context()))
}
