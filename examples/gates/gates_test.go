// Package gates shows gates in other languages. Its tests are the proof that they
// agree with the vectors, and that the vectors agree with the Go packages.
package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/dbserver"
	"go.uber.org/goleak"
)

var (
	update = flag.Bool("update", false, "write the vectors anew")
	long   = flag.Bool("long", false, "also run the gate in TypeScript")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stored compares vectors with the file that has them.
func stored(t *testing.T, name string, vectors any) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(vectors); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("vectors", name+".json")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is not what the Go packages do: run go test ./examples/gates -update, and look at the difference", path)
	}
}

// outcome is what a gate answers. Fences are strings, since not every JSON parser
// reads all of them as numbers.
type outcome struct {
	Key    string `json:"key,omitempty"`
	Fence  string `json:"fence,omitempty"`
	Reason string `json:"reason,omitempty"`
	Newest string `json:"newest,omitempty"`
}

func refused(t *testing.T, err error) (o outcome) {
	t.Helper()
	if err == nil {
		return o
	}
	refusal, ok := fencing.RefusalOf(err)
	if !ok {
		t.Fatal(err)
	}
	o.Reason = refusal.Reason
	var stale *fencing.StaleError
	if errors.As(err, &stale) {
		o.Newest = strconv.FormatInt(stale.Newest, 10)
	}
	return o
}

type tokenVector struct {
	Header string  `json:"header"`
	Want   outcome `json:"want"`
}

func TestTokens(t *testing.T) {
	long := strings.Repeat("k", 1024)
	var vectors []tokenVector
	for _, header := range []string{
		`1;key="a"`, `1234;key="orders/42"`, `999999999999999;key="a"`, `"1000000000000000";key="a"`, `"9223372036854775807";key="a"`,
		`5;key="say \"hi\" \\ bye"`, `5;key="a;key=b"`, `5;key=%"caf%c3%a9"`, `5;key=%"%e2%82%ac %f0%9f%94%92"`, `5;key=%"ascii"`,
		// Accepted, although no Go program writes it.
		` 5;key="a" `, `5; key="a"`, `0005;key="a"`, `5;key="a";key="b"`, `5;a=1;b=1.5;c=:aGk=:;d=?1;e=@-5;f=tok/en*;g;h="\"";i=%"%25";key="a"`,
		"5;key=\"" + long + `"`,
		// Not a token.
		``, ` `, `5`, `5;key`, `5;key=a`, `5;key=1`, `5;key=""`, `5;key=%""`, `5;key="a`, `5;key="a\b"`, `5;key="a",6;key="b"`, `5;key="a" ;x`,
		`5 ;key="a"`, "5;\tkey=\"a\"", "\t5;key=\"a\"", `5;Key="a"`, `5;KEY="a";key="b"`, `5;key=%"caf%C3%A9"`, `5;key=%"%ff"`, `5;x=%"%ff";key="a"`, `5;key=%"caf%c3"`,
		`5;key="café"`, `5;key=%"%00"`, `5;key=%"a%0ab"`, `5;key=%"%7f"`, `5;key=%"%c2%85"`, `5;key=%"%ed%a0%80"`, `5;key=%"50%"`,
		`0;key="a"`, `-1;key="a"`, `-0;key="a"`, `+5;key="a"`, `5.0;key="a"`, `@5;key="a"`, `5e1;key="a"`, `0x5;key="a"`, `٥;key="a"`, `five;key="a"`,
		`1000000000000000;key="a"`, `"999999999999999";key="a"`, `"01000000000000000";key="a"`, `"9223372036854775808";key="a"`,
		`"-1000000000000000";key="a"`, `%"1000000000000000";key="a"`, `"5";key="a"`,
		"5;key=\"" + long + `k"`, `5;key="a";x="` + strings.Repeat("x", 4096) + `"`,
	} {
		token, err := fencing.Parse(header)
		v := tokenVector{Header: header, Want: refused(t, err)}
		if err == nil {
			v.Want = outcome{Key: token.Key, Fence: strconv.FormatInt(token.Fence, 10)}
		}
		vectors = append(vectors, v)
	}
	stored(t, "tokens", vectors)
}

type verdictVector struct {
	Header *string `json:"header"`
	Want   outcome `json:"want"`
}

// TestVerdicts makes writes in order at one gate.
func TestVerdicts(t *testing.T) {
	var gate fencing.Memory
	var vectors []verdictVector
	for _, header := range []string{
		`5;key="a"`, `5;key="a"`, `4;key="a"`, `7;key="a"`, `6;key="a"`, `5;key="a"`, `7;key="a"`, `nonsense`, ``,
		`1;key="b"`, `1;key="A"`, `1;key="a "`, `1;key=%"%c3%a4"`, `1;key=%"a%cc%88"`, `7;key="a"`,
		`"1125899906842624";key="a"`, `8;key="a"`, `"1125899906842623";key="a"`, `"9223372036854775807";key="a"`, `"9223372036854775806";key="a"`,
	} {
		v := verdictVector{Header: &header}
		token, err := fencing.Parse(header)
		switch {
		case header == "":
			v.Header, err = nil, fencing.ErrNoToken
		case err == nil:
			err = gate.Admit(t.Context(), token)
		}
		v.Want = refused(t, err)
		vectors = append(vectors, v)
	}
	stored(t, "verdicts", vectors)
}

// run runs a program in a directory, and expects that it finds no difference.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.HasSuffix(out, []byte(" checked, 0 wrong\n")) {
		t.Errorf("%v: %v", cmd, err)
	}
}

func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import sqlite3, sys; sys.exit(sqlite3.sqlite_version_info < (3, 35))").CombinedOutput(); err != nil {
		t.Skipf("python3 has no SQLite 3.35: %s", out)
	}
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	run(t, "python", python, "check.py")
}

// TestTypeScript compiles the gate, and runs it on Postgres.
func TestTypeScript(t *testing.T) {
	if !*long {
		t.Skip("npm downloads what it needs: run with -long")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	database := postgres(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("typescript")); err != nil {
		t.Fatal(err)
	}
	vectors, err := filepath.Abs("vectors")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install what the gate needs: %v: %s", err, out)
	}
	build := exec.CommandContext(ctx, npm, "run", "build")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run(t, dir, "node", filepath.Join("out", "check.js"), vectors, database)
}

// postgres starts a server, and returns its connection string.
func postgres(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gates") //nolint:usetesting // the server's user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd, err := dbserver.Postgres(t.Context(), dir, "gates", "-k", dir, "-c", "listen_addresses=")
	if errors.Is(err, dbserver.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(30 * time.Second); dbserver.PostgresReady(dir) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("postgres did not start")
		}
	}
	return "postgres://gates@localhost/postgres?host=" + dir
}
