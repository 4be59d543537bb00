package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing"
)

const (
	workerCommand = "worker"
	ready         = "ready"
	written       = "written"
	refused       = "refused"
)

// A job is what a worker is told on its standard input. On the next line it
// writes, and tells how that went.
type job struct {
	Name, DSN, Prefix string
	Endpoints         []string
	Guarded           bool
	From, To          string
	Amount            int
}

// work is the whole of a worker process.
func work(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var j job
	orders, tell := json.NewDecoder(in), json.NewEncoder(out)
	if err := orders.Decode(&j); err != nil {
		return err
	}
	b, err := openBank(j.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: j.Prefix, Owner: j.Name, TTL: 5 * time.Second, Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Close(context.WithoutCancel(ctx))) }()

	claim, err := claims.Acquire(ctx, "ledger") // waits while another holds it
	if err != nil {
		return err
	}
	if j.Guarded { // from here on the owner before is shut out
		if err := fencing.Seal(ctx, claim.Token(), b.guard.Gate(b.db)); err != nil {
			return err
		}
	}
	had, err := b.balances(ctx)
	if err != nil {
		return err
	}
	if err := claim.Check(); err != nil { // as it should: the claim is ours
		return err
	}
	if err := tell.Encode(ready); err != nil {
		return err
	}
	// Here it is frozen. Any process can be, by a hypervisor, a full disk or a
	// garbage collector, and no look at a clock or a lock before can help that.
	if err := orders.Decode(new(string)); err != nil {
		return err
	}
	outcome := written
	switch err := b.transfer(ctx, had, j, claim.Token()); {
	case errors.Is(err, fencing.ErrStale):
		outcome = refused
	case err != nil:
		return err
	}
	return tell.Encode(outcome)
}

// A process is a worker, as its parent sees it.
type process struct {
	child  *demoproc.Child
	orders *json.Encoder
	tells  *json.Decoder
	pipes  []*os.File
	stderr bytes.Buffer
}

// startWorker returns once the worker is about to write. It ends with ctx.
func startWorker(ctx context.Context, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	tells, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), orders.Close())
	}
	p := &process{orders: json.NewEncoder(orders), tells: json.NewDecoder(tells), pipes: []*os.File{orders, tells}}
	cmd := exec.Command(self, workerCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &p.stderr
	p.child, err = demoproc.StartChild(cmd)
	err = errors.Join(err, stdin.Close(), stdout.Close()) // the child has its own
	if p.child != nil {
		context.AfterFunc(ctx, p.child.Kill)
	}
	if err == nil {
		err = p.orders.Encode(j)
	}
	if err == nil {
		err = p.expect(ready)
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("%s: %w: %s", j.Name, err, &p.stderr)
	}
	return p, nil
}

func (p *process) expect(want string) error {
	var got string
	err := p.tells.Decode(&got)
	if err == nil && got != want {
		err = fmt.Errorf("it said %q, not %q", got, want)
	}
	return err
}

// write has the worker write, and returns what became of that.
func (p *process) write() (outcome string, err error) {
	if err = p.orders.Encode("write"); err == nil {
		err = p.tells.Decode(&outcome)
	}
	if err != nil {
		p.child.Kill()
		err = fmt.Errorf("%w: %s", err, &p.stderr)
	}
	return outcome, err
}

func (p *process) end() {
	if p.child != nil {
		p.child.Kill()
	}
	for _, f := range p.pipes {
		_ = f.Close()
	}
}
