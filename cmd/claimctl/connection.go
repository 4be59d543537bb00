package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/srv"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// connection is the flags of etcdctl, with its names, defaults and environment.
type connection struct {
	etcd              clientv3.ConfigSpec // without Secure and Auth
	secure            clientv3.SecureConfig
	user, password    string
	passwordFile      string
	discovery         string // domain of the SRV records
	discoveryName     string
	insecureDiscovery bool
	commandTimeout    time.Duration
	debug             bool
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.etcd.Endpoints, "endpoints", []string{"127.0.0.1:2379"}, "etcd endpoints")
	flags.StringVarP(&c.discovery, "discovery-srv", "d", "", "domain name to query for SRV records describing cluster endpoints")
	flags.StringVar(&c.discoveryName, "discovery-srv-name", "", "service name to query when using DNS discovery")
	flags.BoolVar(&c.insecureDiscovery, "insecure-discovery", true, "accept insecure SRV records describing cluster endpoints")
	flags.StringVar(&c.secure.Cacert, "cacert", "", "verify certificates of the servers using this CA bundle")
	flags.StringVar(&c.secure.Cert, "cert", "", "identify the client using this TLS certificate file")
	flags.StringVar(&c.secure.Key, "key", "", "identify the client using this TLS key file")
	flags.StringVar(&c.secure.ServerName, "tls-server-name", "", "name to verify the certificates of the servers against")
	flags.StringVar(&c.user, "user", "", "username[:password] for authentication (a terminal is asked for a missing password)")
	flags.StringVar(&c.password, "password", "", "password for authentication (if this option is used, --user must not contain one; ps shows it)")
	flags.StringVar(&c.passwordFile, "password-file", "", "file whose first line is the password, which ps does not show")
	flags.BoolVar(&c.secure.InsecureTransport, "insecure-transport", true, "disable transport security if no certificates are given")
	flags.BoolVar(&c.secure.InsecureSkipVerify, "insecure-skip-tls-verify", false, "skip verification of the servers' certificates")
	flags.DurationVar(&c.etcd.DialTimeout, "dial-timeout", 2*time.Second, "how long to wait for a connection")
	flags.DurationVar(&c.commandTimeout, "command-timeout", 5*time.Second, "how long a command may take, apart from waiting for a key and running")
	flags.DurationVar(&c.etcd.KeepAliveTime, "keepalive-time", 10*time.Second, "interval of pings to etcd")
	flags.DurationVar(&c.etcd.KeepAliveTimeout, "keepalive-timeout", 6*time.Second, "how long etcd may take to answer a ping")
	flags.BoolVar(&c.debug, "debug", false, "log what the clients do")
}

// fromEnvironment sets the flags of all commands that are not given from the environment.
func (a *app) fromEnvironment(cmd *cobra.Command) (err error) {
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		variable := "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		switch f.Name {
		case "output", "owner":
			return // etcdctl has no such flag
		case "prefix", "as":
			variable = "CLAIMCTL_" + strings.ToUpper(f.Name)
		}
		value := os.Getenv(variable)
		if f.Changed || value == "" || err != nil {
			return
		}
		if f.Name == "write-out" && (cmd.Flags().Changed("output") || !isFormat(value)) {
			return // etcdctl has formats that claimctl has not
		}
		if invalid := f.Value.Set(value); invalid != nil {
			err = fmt.Errorf("environment variable %s=%q: %w", variable, value, invalid)
		}
	})
	return err
}

// discover replaces the endpoints by those of the SRV records of a domain, as etcdctl does.
func (c *connection) discover() error {
	if c.discovery == "" {
		return nil
	}
	found, err := srv.GetClient("etcd-client", c.discovery, c.discoveryName)
	if err != nil {
		return &exitError{exitUnreachable, fmt.Errorf("discover etcd in %q: %w", c.discovery, err)}
	}
	c.etcd.Endpoints = found.Endpoints
	if !c.insecureDiscovery {
		info := transport.TLSInfo{TrustedCAFile: c.secure.Cacert, ServerName: c.discovery}
		c.etcd.Endpoints, err = transport.ValidateSecureEndpoints(info, found.Endpoints)
		if c.secure.ServerName == "" { // what the records name must have a certificate of the domain
			c.secure.ServerName = c.discovery
		}
	}
	if len(c.etcd.Endpoints) == 0 {
		return &exitError{exitUnreachable, fmt.Errorf("discover etcd in %q: no endpoint that can be used: %w", c.discovery, err)}
	}
	return nil // those that cannot be used are left out
}

// clientConfig returns the configuration of an etcd client.
func (a *app) clientConfig(log *zap.Logger) (*clientv3.Config, error) {
	if err := a.discover(); err != nil {
		return nil, err
	}
	auth, err := a.login()
	if err != nil {
		return nil, err
	}
	spec := a.etcd
	spec.Secure, spec.Auth = &a.secure, auth
	cfg, err := clientv3.NewClientConfig(&spec, log)
	if err != nil {
		return nil, usageError("connect to etcd: %w", err)
	}
	cfg.Logger = log
	return cfg, nil
}

// dial returns an etcd client. Without a password it does no I/O.
func (a *app) dial() (*clientv3.Client, error) {
	log := zap.NewNop()
	if a.debug {
		log = a.logger(zapcore.DebugLevel).Named("etcd")
	}
	cfg, err := a.clientConfig(log)
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(*cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return etcd, nil
}

// logger writes to the standard error.
func (a *app) logger(level zapcore.Level) *zap.Logger {
	if a.debug {
		level = zapcore.DebugLevel
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(zapcore.AddSync(a.err)), level))
}

// client returns a client of the claims, and what closes it and its etcd client. What matters was
// released before, with an error if that failed.
func (a *app) client(cfg etcdclaims.Config) (*etcdclaims.Client, func(), error) {
	etcd, err := a.dial()
	if err != nil {
		return nil, nil, err
	}
	cfg.Prefix, cfg.Owner = a.prefix, a.label()
	if cfg.Logger == nil && a.debug {
		cfg.Logger = a.logger(zapcore.DebugLevel)
	}
	claims, err := etcdclaims.New(etcd, cfg)
	if err != nil {
		_ = etcd.Close()
		return nil, nil, &exitError{exitUsage, err}
	}
	return claims, func() {
		ctx, cancel := context.WithTimeout(context.Background(), a.commandTimeout)
		defer cancel()
		_ = claims.Close(ctx)
		_ = etcd.Close()
	}, nil
}

// with calls f with a client and the time that a command may take.
func (a *app) with(cmd *cobra.Command, f func(ctx context.Context, claims *etcdclaims.Client) error) error {
	claims, end, err := a.client(etcdclaims.Config{})
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(cmd.Context(), a.commandTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go a.awaitConnection(ctx, claims.Etcd().ActiveConnection(), giveUp)
	err = f(ctx, claims)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNoConnection) {
		return cause
	}
	return err
}

var errNoConnection = errors.New("no connection to etcd")

// awaitConnection ends a command that has no connection after --dial-timeout. One that was
// there is not waited for again.
func (a *app) awaitConnection(ctx context.Context, conn *grpc.ClientConn, end context.CancelCauseFunc) {
	dialing, cancel := context.WithTimeout(ctx, a.etcd.DialTimeout)
	defer cancel()
	for {
		switch is := conn.GetState(); {
		case is == connectivity.Ready || is == connectivity.Shutdown:
			return
		case conn.WaitForStateChange(dialing, is):
		case ctx.Err() == nil && is != connectivity.Idle: // else nothing was sent
			end(fmt.Errorf("%w within %v", errNoConnection, a.etcd.DialTimeout))
			return
		default:
			return
		}
	}
}

// label is the owner of claims, and who did it in notices.
func (a *app) label() string {
	return cmp.Or(a.owner, fmt.Sprintf("%s-%d", userAtHost(), os.Getpid()))
}

// person is who did it in the records of operators.
func (a *app) person() string { return cmp.Or(a.as, userAtHost()) }

func userAtHost() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
