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
	return orderPeer(of, func(st *stage, n int) load.Order {
		return load.Order{Client: client, Shape: st.shape(n)}
	})
}

// queuePeer measures somebody else's queue: workers that enqueue some jobs each, and wait
// until as many are handled.
func queuePeer(client string, of kind, each int) func(context.Context, *stage, int) (contender, error) {
	return orderPeer(of, func(st *stage, n int) load.Order {
		return load.Order{Client: client, Shape: st.shape(n), Each: each, Handlers: n * each}
	})
}

// enqueuePeer measures how fast jobs are put into somebody else's queue, which nobody
// handles.
func enqueuePeer(client string, of kind) func(context.Context, *stage, int) (contender, error) {
	return orderPeer(of, func(st *stage, n int) load.Order {
		return load.Order{Client: client, Shape: st.shape(n), Each: 1}
	})
}

// pickUpPeer measures how long somebody else's queue, as it is by default, takes from
// the call that enqueues a job to one of n handlers that wait for it.
func pickUpPeer(client string, of kind) func(context.Context, *stage, int) (contender, error) {
	return orderPeer(of, func(st *stage, n int) load.Order {
		return load.Order{Client: client, Shape: st.shape(1), Each: 1, Handlers: n, Defaults: true}
	})
}

func orderPeer(of kind, make func(*stage, int) load.Order) func(context.Context, *stage, int) (contender, error) {
	return func(ctx context.Context, st *stage, n int) (contender, error) {
		s, err := st.server(ctx, of)
		if err != nil {
			return nil, err
		}
		if err := st.peers.build(ctx, st.data); err != nil {
			return nil, err
		}
		o := make(st, n)
		o.Address = s.address
		order, err := json.Marshal(o)
		return peer{st.peers.path, string(order), o.Each}, err
	}
}

// peer is a contender that the other program measures.
type peer struct {
	path, order string
	each        int // what is counted of one step, if that is not 1
}

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
	s := of(r)
	s[rate] *= float64(max(p.each, 1))
	return s, err
}

func (peer) close() {}
