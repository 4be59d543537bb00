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
	c, err := open(ctx, o.Client, o.Address)
	if err != nil {
		return err
	}
	defer c.close()
	keys := make([]string, o.Shape.Workers) // one of each worker
	for i := range keys {
		keys[i] = fmt.Sprintf("key/%d", i)
	}
	r, err := load.Run(ctx, o.Shape, nil, func(ctx context.Context, who int) error { return c.cycle(ctx, keys[who]) })
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
