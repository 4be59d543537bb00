package examples_test

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/samples"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The program of the README runs as it stands, but for the address, on the etcd that the
// README names: a second process is refused while the first one is the owner, and the
// owner's write takes place.
func testReadmeProgram(t *testing.T, dev string) {
	endpoint := endpointOf(t, serve(t, dev, "-page=", "-empty"))
	program := buildProgram(t, endpoint)

	first := exec.CommandContext(t.Context(), program)
	stdin, err1 := first.StdinPipe()
	stdout, err2 := first.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !regexp.MustCompile(`^owner of invoice/42 with fence [1-9]\d*; press Enter to pay\n$`).MatchString(line) {
		t.Fatalf("it printed %q; %v", line, err)
	}
	second, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil || !bytes.Contains(second, []byte(`acquire "invoice/42": held by `)) {
		t.Errorf("a second process printed %q; %v", second, err)
	}
	if _, err := io.WriteString(stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	paid, err := etcd.Get(t.Context(), "/paid/42")
	if err != nil || len(paid.Kvs) != 1 || string(paid.Kvs[0].Value) != "100 EUR" {
		t.Errorf("/paid/42 is %v; %v", paid, err)
	}
}

// buildProgram builds the one whole program of the documents for an etcd at another address.
func buildProgram(t *testing.T, endpoint string) string {
	t.Helper()
	const root = ".."
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var programs []samples.Block
	for _, document := range append(documents, filepath.Join(root, "README.md")) {
		blocks, err := samples.Read(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.IsProgram() {
				programs = append(programs, b)
			}
		}
	}
	const address = `"127.0.0.1:2379"`
	if len(programs) != 1 || !strings.Contains(programs[0].Code, address) {
		t.Fatalf("%d programs; run each in this test", len(programs))
	}
	programs[0].Code = strings.Replace(programs[0].Code, address, `"`+endpoint+`"`, 1)
	dir := t.TempDir()
	packages, err := samples.Write(dir, root, programs)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", binary, packages[0])
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}
