package main

import (
	"context"
	"net"
	"os/exec"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// Redis as it has to be run for locks that survive a crash of the machine, which
// is what etcd does; and as it is run for caches. Its log is not rewritten: that
// would fall into some measurements and not into others.
var (
	redisDurable   = redis("redis-durable", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	redisForgetful = redis("redis-forgetful", "--appendonly", "no")
)

func redis(name string, args ...string) kind {
	return kind{
		name: name,
		start: func(_ context.Context, dir, address string) (*testetcd.Child, error) {
			path, err := exec.LookPath("redis-server")
			if err != nil {
				return nil, absent("redis-server is not installed (Debian: redis-server)")
			}
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return logged(exec.Command(path, append([]string{
				"--bind", host, "--port", port, "--dir", dir, "--save", "", "--daemonize", "no",
			}, args...)...), dir)
		},
		ready: func(ctx context.Context, _, address string) error {
			return answers(ctx, address, "PING\r\n", "+PONG\r\n")
		},
	}
}
