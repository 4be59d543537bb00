package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/netutil"
)

// tokenVariable is the environment variable with the bearer token.
const tokenVariable = "CLAIMCTL_TOKEN"

const text = `Serve claims, guarded writes and queues to programs in any language, by HTTP and
JSON on a unix socket that only its user can open, or on a loopback address. GET
/v1/openapi.json describes all requests and errors. examples/python/claims.py is a
client in Python.

A program gives each claim a ttl, and sends a heartbeat within it. A program that dies
loses its claim when the ttl is over, or at once if it watched the claim with
hold=true. A program that was stopped for longer finds its writes refused with 412.
If claimctl dies, its claims end within the ttl (5 s at least) and one second.

A program computes its deadline from its own clock: the instant before it sent the request,
plus waited_ms and remaining_ms of the answer. It must not work under the claim
after that. With a clock that runs on while the machine sleeps, the deadline is never later
than that of claimctl, which is never later than the end of the lease in etcd. Only a
fence stops a write that is late all the same: write to etcd by txn with the token of the
claim, and send the token to other resources.

Whoever can open the socket, or has the token, can use all keys that the user of etcd
can: limit that by a role in etcd. On TERM or INT claimctl acquires and prolongs
nothing any more, and exits when all claims have ended, which takes --max-ttl at most.
A second signal ends them at once, also while their programs work.

One claimctl serves a socket, and another one is refused at once. It locks the file
beside the socket with the suffix .lock, which is empty and stays. A claimctl that is
killed leaves its socket, which the next one replaces. Where files have no locks of this
kind, such as on Windows, nothing keeps two apart that start at the same instant.`

// Connect makes the client that holds the claims, and returns what closes it.
type Connect func(etcdclaims.Config) (*etcdclaims.Client, func(), error)

// command is the flags of the command.
type command struct {
	Config
	socket, tcp, tokenFile string
	connect                Connect
	logger                 func(zapcore.Level) *zap.Logger
}

// Command returns the command "serve".
func Command(group string, connect Connect, logger func(zapcore.Level) *zap.Logger) *cobra.Command {
	c := &command{connect: connect, logger: logger}
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: group,
		Short:   "Serve claims and queues to programs in any language",
		Long:    text,
		Example: `  claimctl serve --socket /run/user/1000/claims.sock
  claimctl serve --tcp 127.0.0.1:8379 --token-file token`,
		Args: c.check,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.socket, "socket", "", "path of the unix socket (default claimctl.sock in $XDG_RUNTIME_DIR)")
	flags.StringVar(&c.tcp, "tcp", "", "loopback address and port to listen on instead of a socket; needs a token")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with the token that each request must have (default $"+tokenVariable+")")
	flags.DurationVar(&c.MaxTTL, "max-ttl", time.Minute, "longest ttl of a claim or an item")
	flags.IntVar(&c.MaxHeld, "max-held", 4096, "claims and items that may be held")
	flags.IntVar(&c.MaxWaiting, "max-waiting", 4096, "requests that may wait in line, or watch")
	return cmd
}

// check refuses arguments and flags before anything is sent.
func (c *command) check(_ *cobra.Command, args []string) (err error) {
	if c.Token, err = c.token(); err != nil {
		return err
	}
	switch {
	case len(args) > 0:
		return fmt.Errorf("serve: got the argument %q; usage: claimctl serve [flags]", args[0])
	case c.MaxTTL < time.Second, c.MaxHeld < 1, c.MaxWaiting < 1:
		return errors.New("serve: --max-ttl must be 1s or more, --max-held and --max-waiting 1 or more")
	case c.tcp != "" && c.socket != "":
		return errors.New("serve: --tcp and --socket exclude each other")
	case c.tcp != "" && c.Token == "":
		return fmt.Errorf("serve: --tcp needs a token: use --token-file or %s", tokenVariable)
	case c.tcp != "":
		return checkLoopback(c.tcp)
	case c.socket == "" && os.Getenv("XDG_RUNTIME_DIR") == "":
		return errors.New("serve: XDG_RUNTIME_DIR is not set: use --socket or --tcp")
	}
	return nil
}

// token reads the token, which no flag has: ps shows flags to every user of the machine.
func (c *command) token() (string, error) {
	if c.tokenFile == "" {
		return os.Getenv(tokenVariable), nil
	}
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("serve: --token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("serve: --token-file %s is empty", c.tokenFile)
	}
	return token, nil
}

func (c *command) listen() (net.Listener, error) {
	switch {
	case c.tcp != "":
		return listenTCP(c.tcp)
	case c.socket == "":
		c.socket = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "claimctl.sock")
	}
	return listenUnix(c.socket)
}

// run serves until a signal comes.
func (c *command) run(ctx context.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	c.Logger = c.logger(zapcore.InfoLevel)
	claims, end, err := c.connect(etcdclaims.Config{Logger: c.Logger})
	if err != nil {
		return err
	}
	defer end()
	c.Claims = claims
	listener, err := c.listen()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return serve(ctx, New(c.Config), listener, signals)
}

// serve answers the requests of a listener until a signal comes, or ctx ends. It then takes nothing
// from a program before its time, also if the listener has failed.
func serve(ctx context.Context, s *Server, listener net.Listener, signals <-chan os.Signal) (err error) {
	listener = netutil.LimitListener(listener, maxRunning+s.cfg.MaxWaiting+s.cfg.MaxHeld)
	server := &http.Server{Handler: s, ReadHeaderTimeout: bodyTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	s.cfg.Logger.Info("serving", zap.Stringer("address", listener.Addr()))
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case sig := <-signals:
		s.cfg.Logger.Info("stopping", zap.Stringer("signal", sig))
	case <-ctx.Done():
	}
	draining, force := context.WithCancel(context.Background())
	defer force()
	go func() {
		select {
		case <-signals:
			force()
		case <-draining.Done():
		}
	}()
	s.Stop(draining)
	closing, cancel := context.WithTimeout(context.Background(), bodyTime)
	defer cancel()
	_ = server.Shutdown(closing)
	_ = server.Close()
	return err
}
