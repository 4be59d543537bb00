package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/etcdclaims/claims/internal/compare/load"
)

// here is this package.
const here = "github.com/etcdclaims/claims/internal/compare"

// peers is the program that drives other people's clients, which is a module of its
// own. It is built when it is first needed, and started for each measurement.
type peers struct {
	path string
	err  error // why it cannot be built
}

func (p *peers) build(ctx context.Context, dir string) error {
	if p.path == "" && p.err == nil {
		if p.path, p.err = buildPeers(ctx, dir); p.err != nil {
			p.err = absent("the clients of its peers cannot be built: %v", p.err)
		}
	}
	return p.err
}

func buildPeers(ctx context.Context, dir string) (string, error) {
	var stderr strings.Builder
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", here)
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &stderr)
	}
	path := filepath.Join(dir, "peers")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(strings.TrimSpace(string(out)), "peers"), "-buildvcs=false", "-o", path, ".")
	build.Env = append(os.Environ(), "GOWORK=off") // a developer's workspace does not know the module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
}

// cyclePeer measures somebody else's client on a server that is not etcd.
func cyclePeer(client string, of kind) func(context.Context, *stage, int) (contender, error) {
	return func(ctx context.Context, st *stage, n int) (contender, error) {
		s, err := st.server(ctx, of)
		if err != nil {
			return nil, err
		}
		if err := st.peers.build(ctx, st.data); err != nil {
			return nil, err
		}
		order, err := json.Marshal(load.Order{Client: client, Address: s.address, Shape: st.shape(n)})
		return peer{st.peers.path, string(order)}, err
	}
}

// peer is a contender that the other program measures.
type peer struct{ path, order string }

func (p peer) measure(ctx context.Context) (sample, error) {
	cmd := exec.CommandContext(ctx, p.path, p.order)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	var r load.Result
	err = json.Unmarshal(out, &r)
	return of(r), err
}

func (peer) close() {}
