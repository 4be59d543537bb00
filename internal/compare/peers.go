package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// here is this package.
const here = "github.com/etcdclaims/claims/internal/compare"

// peers is the program that drives other people's clients, which is a module of
// its own: built and started when it is first needed. The zero value is ready.
type peers struct {
	tried   bool
	err     error // why there is none
	child   *testetcd.Child
	orders  *os.File
	answers *os.File
	decoder *json.Decoder
	stderr  bytes.Buffer
}

// start builds and starts the program, once.
func (p *peers) start(ctx context.Context, dir string) error {
	if p.tried {
		return p.err
	}
	p.tried = true
	path, err := buildPeers(ctx, dir)
	if err == nil {
		err = p.launch(path)
	}
	if err != nil {
		p.err = absent("the clients of its peers cannot be built: %v", err)
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

// launch gives the program pipes that outlast it: those that package exec makes
// are closed with the process, whatever is still in them.
func (p *peers) launch(path string) error {
	stdin, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	answers, stdout, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), orders.Close())
	}
	cmd := exec.Command(path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &p.stderr
	p.child, err = testetcd.StartChild(cmd)
	_, _ = stdin.Close(), stdout.Close() // the child has its own
	if err != nil {
		return errors.Join(err, orders.Close(), answers.Close())
	}
	p.orders, p.answers, p.decoder = orders, answers, json.NewDecoder(answers)
	return nil
}

// ask has the program measure something. If ctx ends meanwhile, so does the
// program.
func (p *peers) ask(ctx context.Context, o load.Order) (load.Result, error) {
	defer context.AfterFunc(ctx, p.child.Kill)()
	var a load.Answer
	err := json.NewEncoder(p.orders).Encode(o)
	if err == nil {
		err = p.decoder.Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		return a.Result, ctx.Err()
	case err != nil:
		p.child.Kill()
		return a.Result, fmt.Errorf("the program of the peers' clients ended: %w: %s", err, &p.stderr)
	case a.Error != "":
		return a.Result, errors.New(a.Error)
	}
	return a.Result, nil
}

func (p *peers) stop() {
	if p.child == nil {
		return
	}
	p.child.Kill()
	_, _ = p.orders.Close(), p.answers.Close()
	p.child = nil
}

// cyclePeer measures somebody else's client on a server that is not etcd.
func cyclePeer(client string, of kind) func(context.Context, *stage, int) (contender, error) {
	return func(ctx context.Context, st *stage, n int) (contender, error) {
		s, err := st.server(ctx, of)
		if err != nil {
			return nil, err
		}
		if err := st.peers.start(ctx, st.data); err != nil {
			return nil, err
		}
		return &ordered{&st.peers, load.Order{Client: client, Address: s.address, Shape: st.shape(n)}}, nil
	}
}

// ordered is a contender that the other program measures.
type ordered struct {
	peers *peers
	order load.Order
}

func (o *ordered) measure(ctx context.Context) (sample, error) {
	r, err := o.peers.ask(ctx, o.order)
	if err != nil {
		return nil, err
	}
	return of(r), nil
}

func (o *ordered) close() {}
