package main

import (
	"context"
	"net"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/etcdclaims/claims/internal/dbserver"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// postgres is one with its defaults, which are durable, but for the connections
// that it takes.
var postgres = kind{
	name: "postgres",
	start: func(ctx context.Context, dir, address string) (*testetcd.Child, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cmd, err := dbserver.Postgres(ctx, dir, load.PostgresUser,
			"-c", "listen_addresses="+host, "-p", port, "-c", "unix_socket_directories=", "-c", "max_connections=200")
		if err != nil {
			return nil, absent("%v", err)
		}
		return logged(cmd, dir)
	},
	ready: func(_ context.Context, dir, _ string) error { return dbserver.PostgresReady(dir) },
}
