package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/explain"
)

// Commands that are printed to be copied act on the system that was looked at: they
// have the flags that name it, as far as they were given as flags. What came from the
// environment is found there again. A password is never printed.

// claimctl returns the beginning of a command of claimctl.
func (a *app) claimctl() string {
	return a.commandLine("claimctl", append(a.endpointFlags(), a.tlsFlags()...), "tls-server-name", a.serverName, "prefix", a.prefix)
}

// etcdctl returns the beginning of a command of etcdctl.
func (a *app) etcdctl() string {
	return a.commandLine("etcdctl", append(a.endpointFlags(), a.tlsFlags()...))
}

// etcdctlAtMember returns the same without the endpoints.
func (a *app) etcdctlAtMember() string { return a.commandLine("etcdctl", a.tlsFlags()) }

func (a *app) endpointFlags() []string {
	return []string{
		"endpoints", strings.Join(a.endpoints, ","), "discovery-srv", a.discovery, "discovery-srv-name", a.discoveryName,
		"insecure-discovery", strconv.FormatBool(a.insecureDiscovery),
	}
}

func (a *app) tlsFlags() []string {
	return []string{"cacert", a.caCert, "cert", a.cert, "key", a.key, "insecure-skip-tls-verify", ""}
}

// commandLine returns a program and those of the flags, each followed by its value,
// that were given. A flag without a value has an empty one.
func (a *app) commandLine(program string, flags []string, more ...string) string {
	line := program
	for pair := range slices.Chunk(append(flags, more...), 2) {
		switch {
		case !slices.Contains(a.given, pair[0]):
		case pair[0] == "insecure-skip-tls-verify":
			if a.insecureSkipVerify {
				line += " --" + pair[0]
			}
		case pair[0] == "insecure-discovery":
			line += " --" + pair[0] + "=" + pair[1]
		default:
			line += " --" + pair[0] + " " + explain.Quoted(pair[1])
		}
	}
	return line
}
