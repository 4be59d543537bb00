package main

import (
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/pflag"
)

// Commands that are printed to be copied act on the system that was looked at: they
// have the flags that name it, as far as they were given as flags. What came from the
// environment is found there again. A password is never printed.

var (
	endpointFlags = []string{"endpoints", "discovery-srv", "discovery-srv-name", "insecure-discovery"}
	serverFlags   = []string{"cacert", "insecure-skip-tls-verify"}
	tlsFlags      = []string{"cacert", "cert", "key", "insecure-skip-tls-verify"}
)

// claimctl returns the beginning of a command of claimctl.
func (a *app) claimctl() string {
	return a.commandLine("claimctl", endpointFlags, tlsFlags, []string{"tls-server-name", "prefix"})
}

// etcdctl returns the beginning of a command of etcdctl.
func (a *app) etcdctl() string { return a.commandLine("etcdctl", endpointFlags, tlsFlags) }

// etcdctlAtMember returns the same without the endpoints.
func (a *app) etcdctlAtMember() string { return a.commandLine("etcdctl", tlsFlags) }

// etcdctlAsRoot returns the beginning of a command of etcdctl for what the user of this client may not do.
func (a *app) etcdctlAsRoot() string {
	line := a.commandLine("etcdctl", endpointFlags, serverFlags)
	if a.user != "" {
		line += " --user root"
	}
	return line
}

// commandLine returns a program and those of the flags that were given, with their values.
func (a *app) commandLine(program string, flags ...[]string) string {
	line := program
	for _, name := range slices.Concat(flags...) {
		f := a.flags.Lookup(name)
		if !f.Changed {
			continue
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		line += " --" + name
		switch f.NoOptDefVal {
		case "":
			line += " " + explain.Quoted(value)
		case value: // it is a switch that is on
		default:
			line += "=" + value
		}
	}
	return line
}
