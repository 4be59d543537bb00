// Peers drives the clients that claims are compared with and that are not etcd's. The
// program in the directory above starts it for each measurement. It takes a
// load.Order as its argument, and prints a load.Result, both as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/etcdclaims/claims/internal/compare/load"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// A client acquires and releases a key.
type client interface {
	cycle(ctx context.Context, key string) error
	close()
}

// open opens a client by its name.
func open(ctx context.Context, name, address string) (client, error) {
	switch name {
	case load.Redislock:
		return openRedislock(address), nil
	case load.RowLease:
		return openRowLease(ctx, address)
	}
	return nil, fmt.Errorf("no client %q", name)
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments, want one order", len(args))
	}
	var o load.Order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return err
	}
	step, shut, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer shut()
	r, err := load.Run(ctx, o.Shape, nil, step)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// prepare opens what is ordered.
func prepare(ctx context.Context, o load.Order) (step func(ctx context.Context, who int) error, shut func(), err error) {
	if o.Each > 0 {
		q, err := openJobs(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, _ int) error { return q.step(ctx, o.Each) }, q.close, nil
	}
	if o.Client == load.Semaphore {
		s := openRedisSemaphore(o.Address, o.Slots)
		return s.cycle, s.close, nil
	}
	c, err := open(ctx, o.Client, o.Address)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]string, o.Shape.Workers) // one of each worker
	for i := range keys {
		keys[i] = fmt.Sprintf("key/%d", i)
	}
	return func(ctx context.Context, who int) error { return c.cycle(ctx, keys[who]) }, c.close, nil
}
