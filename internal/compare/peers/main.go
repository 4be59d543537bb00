// Peers drives the clients that claims are compared with and that are not
// etcd's. It is for the program in the directory above: it reads orders from its
// standard input, a line of JSON each, and answers each with a line of JSON,
// until the input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/etcdclaims/claims/internal/compare/load"
)

func main() {
	if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
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

func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	clients := map[string]client{}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o load.Order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a load.Answer
		id := o.Client + " " + o.Address
		c, err := clients[id], error(nil)
		if c == nil {
			if c, err = open(ctx, o.Client, o.Address); err == nil {
				clients[id] = c
			}
		}
		if err == nil {
			a.Result, err = measure(ctx, c, o.Shape)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// measure has each worker use a key of its own.
func measure(ctx context.Context, c client, shape load.Shape) (load.Result, error) {
	keys := make([]string, shape.Workers)
	for i := range keys {
		keys[i] = fmt.Sprintf("key/%d", i)
	}
	return load.Run(ctx, shape, nil, func(ctx context.Context, who int) error { return c.cycle(ctx, keys[who]) })
}
