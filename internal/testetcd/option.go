package testetcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/crypto/bcrypt"
)

// An Option changes how a server is configured. The same options serve embedded
// members, processes and virtual servers.
type Option func(*options)

type options struct {
	tweaks    []func(*embed.Config)
	binary    string // what processes run; empty: see binary
	stallable bool   // see StallableDisk
}

// Quota limits the backend to so many bytes. Beyond, etcd refuses writes.
func Quota(bytes int64) Option {
	return Tweak(func(cfg *embed.Config) { cfg.QuotaBackendBytes = bytes })
}

// NoSync makes the server skip fsync. What it acknowledged survives the death
// of its process all the same, only not that of the machine.
func NoSync() Option {
	return Tweak(func(cfg *embed.Config) { cfg.UnsafeNoFsync = true })
}

// MaxTxnOps limits the operations in one transaction (128 by default).
func MaxTxnOps(n uint) Option {
	return Tweak(func(cfg *embed.Config) { cfg.MaxTxnOps = n })
}

// Tweak changes the configuration directly, in the order of the options. The
// function is called whenever a configuration is needed, restarts included.
//
// A process gets as flags what the function changed, so fields without a flag
// have no effect there. A virtual server has no sockets and no HTTP, so what
// concerns these has no effect there.
func Tweak(f func(*embed.Config)) Option {
	return func(o *options) { o.tweaks = append(o.tweaks, f) }
}

func newOptions(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

func (o options) apply(cfg *embed.Config) {
	for _, tweak := range o.tweaks {
		tweak(cfg)
	}
}

const clusterToken = "testetcd"

// Each log is preallocated, and the next one too: at etcd's 64 MB a large part of what a
// server of a test costs. Servers that are processes keep 64 MB.
func init() { wal.SegmentSizeBytes = 4 << 20 }

// member is what the configurations of all kinds of servers have in common.
type member struct {
	name      string
	dir       string // its data survives restarts
	client    string // host:port
	peer      string // host:port
	bootstrap string // the initial cluster: name=url,name=url
}

// newMembers picks names and addresses for n members that are to know each
// other, with data under dir.
func newMembers(n int, dir string) ([]member, error) {
	addrs, err := freeAddrs(2 * n)
	if err != nil {
		return nil, err
	}
	members := make([]member, n)
	bootstrap := ""
	for i := range members {
		name := fmt.Sprintf("m%d", i)
		members[i] = member{
			name:   name,
			dir:    filepath.Join(dir, name),
			client: addrs[2*i],
			peer:   addrs[2*i+1],
		}
		if i > 0 {
			bootstrap += ","
		}
		bootstrap += name + "=http://" + members[i].peer
	}
	for i := range members {
		members[i].bootstrap = bootstrap
	}
	return members, nil
}

// config is etcd's default configuration for the member, plus the options.
func (m member) config(o options) *embed.Config {
	cfg := embed.NewConfig()
	m.configure(cfg)
	o.apply(cfg)
	return cfg
}

func (m member) configure(cfg *embed.Config) {
	cfg.Name = m.name
	cfg.Dir = m.dir
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: m.client}}
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: m.client}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.peer}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: m.peer}}
	cfg.InitialCluster = m.bootstrap
	cfg.InitialClusterToken = clusterToken
	cfg.BcryptCost = uint(bcrypt.MinCost) // each login computes a hash: by default, seconds on a busy machine
	cfg.EnableGRPCGateway = false         // nobody speaks JSON to it; saves a client and its goroutines
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
}

// logger is for servers and clients alike. It is quiet, but tells why before a
// server takes the whole process down.
var logger = zap.New(zapcore.NewCore(
	zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
	zapcore.Lock(os.Stderr),
	zapcore.DPanicLevel,
))
