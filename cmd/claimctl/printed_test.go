//go:build unix

package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// obeys carries out each printed command of etcdctl, in the printed order.
func (n *night) obeys(out string) {
	n.Helper()
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "etcdctl ") {
			n.copies(line, "etcdctl ")
		}
	}
}

// etcdctl carries out a printed command of etcdctl by the API of etcd, as etcdctl does. A test must fail at a
// command that it does not know.
func (n *night) etcdctl(args []string) {
	n.Helper()
	flags := pflag.NewFlagSet("etcdctl", pflag.ContinueOnError)
	endpoints := flags.StringSlice("endpoints", nil, "")
	user := flags.String("user", "", "")
	flags.Duration("command-timeout", 5*time.Second, "")
	physical, cluster, prefix := flags.Bool("physical", false, ""), flags.Bool("cluster", false, ""), flags.Bool("prefix", false, "")
	n.noErr(flags.Parse(args))
	rest, etcd := flags.Args(), n.etcd
	if *user == "root" {
		etcd = n.root
	}
	if strings.Join(*endpoints, ",") != n.flags[1] || *user != "" && etcd != n.root {
		n.Fatalf("another etcd or user: %q", args)
	}
	verb := 1
	if len(rest) > 1 && rest[0] != "compaction" {
		verb = 2
	}
	ctx, known := n.Context(), false
	is := func(name string, arguments int, flag bool) bool {
		fits := strings.Join(rest[:verb], " ") == name && len(rest) == verb+arguments && flag
		known = known || fits
		return fits
	}
	var err error
	switch {
	case is("compaction", 1, *physical):
		var rev int64
		rev, err = strconv.ParseInt(rest[1], 10, 64)
		n.noErr(err)
		_, err = etcd.Compact(ctx, rev, clientv3.WithCompactPhysical())
	case is("defrag", 0, *cluster):
		var all *clientv3.MemberListResponse
		all, err = etcd.MemberList(ctx)
		n.noErr(err)
		for _, m := range all.Members {
			_, err = etcd.Defragment(ctx, m.ClientURLs[0])
			n.noErr(err)
		}
	case is("alarm disarm", 0, true):
		_, err = etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	case is("lease list", 0, true):
		var all *clientv3.LeaseLeasesResponse
		all, err = etcd.Leases(ctx)
		n.noErr(err)
		n.Logf("found %d leases", len(all.Leases))
	case is("role add", 1, true):
		_, err = etcd.RoleAdd(ctx, rest[2])
	case is("user grant-role", 2, true):
		_, err = etcd.UserGrantRole(ctx, rest[2], rest[3])
	case is("role grant-permission", 3, true):
		kind, ok := map[string]clientv3.PermissionType{
			"read": clientv3.PermissionType(clientv3.PermRead), "write": clientv3.PermissionType(clientv3.PermWrite),
			"readwrite": clientv3.PermissionType(clientv3.PermReadWrite),
		}[rest[3]]
		if !ok {
			n.Fatalf("no permission %q: %q", rest[3], args)
		}
		end := ""
		if *prefix {
			end = clientv3.GetPrefixRangeEnd(rest[4])
		}
		_, err = etcd.RoleGrantPermission(ctx, rest[2], rest[4], end, kind)
	}
	if n.noErr(err); !known {
		n.Fatalf("the test does not know %q", args)
	}
}
