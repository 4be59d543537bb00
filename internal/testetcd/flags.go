package testetcd

import (
	"flag"
	"io"
	"strings"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
)

// knownFlags is a configuration with flags bound to it. It is made before
// anything runs because making flags sets variables of rafthttp, which running
// servers read.
var knownFlags = newKnownFlags()

type flagSet struct {
	mu    sync.Mutex
	cfg   *embed.Config
	flags *flag.FlagSet
}

func newKnownFlags() *flagSet {
	k := &flagSet{
		cfg:   embed.NewConfig(),
		flags: flag.NewFlagSet("etcd", flag.ContinueOnError),
	}
	k.flags.SetOutput(io.Discard)
	k.cfg.AddFlags(k.flags)
	return k
}

// flags are the arguments with which etcd runs as this member. Since options
// change a configuration, flags are what they leave different from default.
func (m member) flags(o options) []string {
	client, peer := "http://"+m.client, "http://"+m.peer
	args := []string{
		"--name=" + m.name,
		"--data-dir=" + m.dir,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + m.bootstrap,
		"--initial-cluster-token=" + clusterToken,
		"--log-level=warn",
	}
	set := make(map[string]bool)
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		set[name] = true
	}

	knownFlags.mu.Lock()
	defer knownFlags.mu.Unlock()
	*knownFlags.cfg = *embed.NewConfig()
	m.configure(knownFlags.cfg)
	o.apply(knownFlags.cfg)
	knownFlags.flags.VisitAll(func(f *flag.Flag) {
		if value := f.Value.String(); value != f.DefValue && !set[f.Name] {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}
