//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/permissions"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// records is the prefix of the records of work, which one of the users may not write.
const records = "work/"

// ofEtcd are failures of etcd, of its users and of the network to it.
var ofEtcd = map[string]incident{
	"a member hangs": {
		stage: func(n *night) { n.cluster(3); n.members[2].Pause(n.T) },
		see:   "doctor --problems", words: []string{"endpoint ", "does not answer", " endpoint health"},
		beyond: func(n *night) { n.members[2].Resume(n.T) },
		over:   "doctor",
	},
	"two of three members are stopped": {
		stage: func(n *night) { n.cluster(3); n.members[1].Kill(n.T); n.members[2].Kill(n.T) },
		see:   "doctor --problems", words: []string{"2 of 3 members do not answer, so that etcd has no leader"},
		beyond: func(n *night) {
			restarted := make(chan error, 1)
			go func() { restarted <- n.members[1].ProcessMember.Restart() }() // it serves once the other does
			n.noErr(n.members[2].ProcessMember.Restart())
			n.noErr(<-restarted)
		},
		over: "doctor",
	},
	"etcd is out of space": {
		heading: "etcd is out of space",
		stage: func(n *night) {
			n.alone(testetcd.Quota(8 << 20))
			for err := error(nil); err == nil; {
				_, err = n.etcd.Put(n.Context(), "/rewritten", strings.Repeat("x", 1<<20))
			}
		},
		see: "doctor --problems", words: []string{"NOSPACE; it has /rewritten 1 key, about 1 MiB", "can be the cause of: space "},
		repair: []string{" compaction --physical ", " defrag --cluster", " alarm disarm"},
		over:   "run k -- true",
	},
	"the keys of another program fill etcd": {
		heading: "etcd is out of space",
		stage: func(n *night) {
			n.alone(testetcd.Quota(16 << 20))
			for i, full := 0, false; !full; i++ {
				lease, err := n.etcd.Grant(n.Context(), 3600)
				n.noErr(err)
				_, err = n.etcd.Put(n.Context(), fmt.Sprint("/registry/events/", i), strings.Repeat("x", 1<<17), clientv3.WithLease(lease.ID))
				n.noErr(err)
				status, err := n.etcd.Status(n.Context(), n.flags[1])
				n.noErr(err)
				full = status.DbSize*100 > status.DbSizeQuota*82
			}
		},
		see: "doctor", words: []string{
			"of the quota of 16 MiB: when it is full ", "; it has /registry/ ",
			" are of other programs, with TTLs from 1h0m0s to 1h0m0s; keys below /registry/",
		},
		repair: []string{" lease list"},
		beyond: func(n *night) { // the program ends; only a second report has the space that its keys leave
			all, err := n.etcd.Leases(n.Context())
			n.noErr(err)
			for _, lease := range all.Leases {
				_, _ = n.etcd.Revoke(n.Context(), lease.ID)
			}
			again, _ := n.shows("doctor", time.Minute, n.has(" compaction --physical ", " defrag --cluster"))
			n.obeys(again.out) // with a third line if etcd has raised the alarm meanwhile
		},
		over: "doctor", gone: "when it is full",
	},
	"etcd was rewound": {
		heading: "etcd was rewound",
		stage: func(n *night) {
			n.alone()
			a := n.client("api-7")
			n.noErr(n.claim(a, "k").Release(n.Context()))
			n.types(0, "doctor")
			snapshot := testetcd.TakeSnapshot(n.T, n.etcd)
			for range 20 {
				claim := n.claim(a, "k")
				n.fence = fmt.Sprint(claim.Fence())
				n.noErr(claim.Release(n.Context()))
			}
			n.server.Restore(n.T, snapshot, 0)
		},
		see: "doctor --fence FENCE", words: []string{"fence FENCE has revision"},
		repair: []string{" epoch raise --above 0 --yes"},
		beyond: func(n *night) {
			if c := n.claim(n.client("api-8"), "k"); fmt.Sprint(c.Fence()) == n.fence || c.Fence()>>47 != 1 {
				n.Errorf("fence %d after %s", c.Fence(), n.fence)
			}
		},
		over: "doctor --fence FENCE",
	},
	"etcd requires a user": {
		stage: func(n *night) {
			n.alone()
			_, err := n.etcd.UserAdd(n.Context(), "root", "secret")
			n.noErr(err)
			_, err = n.etcd.UserGrantRole(n.Context(), "root", "root")
			n.noErr(err)
			_, err = n.etcd.AuthEnable(n.Context())
			n.noErr(err)
		},
		see: "doctor", words: []string{"etcd requires a user, and this client names none", "--user"},
		beyond: func(n *night) { n.flags = append(n.flags, "--user", "root:secret") },
		over:   "doctor", code: 1, gone: "requires a user", // a password is a warning
	},
	"a user lacks a permission": {
		heading: "Clients may not do something",
		stage: func(n *night) {
			rows, err := permissions.Table("../../docs/permissions.md")
			n.noErr(err)
			needs := rows["Begin, Complete, Fail, Record"]
			delete(needs, permissions.Data)
			delete(needs, records)
			n.world, _ = guarded(n.T, needs)
			n.root = n.asRoot()
		},
		see: "doctor --for acquire,work", words: []string{"may not read or write PREFIX/" + records + ", which is needed for work"},
		repair: []string{" role grant-permission --prefix=true app readwrite "},
		over:   "run --once invoices/7 -- true",
	},
	"a user has no role": {
		heading: "Clients may not do something",
		stage: func(n *night) {
			n.world, _ = guarded(n.T, nil)
			n.root = n.asRoot()
			_, err := n.root.RoleDelete(n.Context(), "app")
			n.noErr(err)
		},
		see: "doctor --for acquire,wait", words: []string{"may not read or write PREFIX/own/, which is needed for acquire, wait"},
		cause: func(n *night, shown string) { n.obeys(shown) },
		over:  "run --wait 10s k -- true",
	},
	"all keys are deleted by hand": {
		heading: "Keys were deleted by hand",
		stage: func(n *night) {
			n.alone()
			n.enqueues()
			n.types(0, "doctor")
			n.noErr(os.WriteFile(filepath.Join(n.dir(), "claims.jsonl"), []byte(n.ok("backup")), 0o600))
			_, err := n.etcd.Delete(n.Context(), n.prefix, clientv3.WithPrefix())
			n.noErr(err)
		},
		see: "doctor", words: []string{"deleted by no operation of claims", "/spec (mail). ", " restore -f "},
		repair: []string{" restore -f "},
		over:   "doctor", gone: " restore -f ",
	},
	"the disk is slow": {
		stage: func(n *night) {
			n.stallable()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					_ = n.members[0].StallDisk()
					time.Sleep(400 * time.Millisecond) // what each write waits for
					_ = n.members[0].ResumeDisk()
					time.Sleep(20 * time.Millisecond)
				}
			}()
			n.begun = func() { cancel(); <-done }
			n.Cleanup(n.begun)
		},
		see: "doctor --ttl 15s", words: []string{"the 99th percentile ", "; a TTL of 15s is short for that", "look at etcd's disks"},
		beyond: func(n *night) { n.begun() },
		over:   "doctor",
	},
	"a defragmentation takes long": {
		stage: func(n *night) {
			n.stallable()
			etcd := testetcd.NewClient(n.T, clientv3.Config{Endpoints: n.members[0].Endpoints()})
			for range 8 {
				_, err := etcd.Put(n.Context(), "/rewritten", strings.Repeat("x", 1<<20))
				n.noErr(err)
			}
			n.noErr(n.members[0].StallDisk())
			done := make(chan error, 1)
			go func() {
				_, err := etcd.Defragment(context.Background(), n.members[0].Endpoints()[0])
				done <- err
			}()
			n.begun = func() { n.noErr(n.members[0].ResumeDisk()); n.noErr(<-done); n.begun = nil }
		},
		see: "doctor --problems", words: []string{"accepts connections, but does not answer", "wait for the end of a defragmentation"},
		beyond: func(n *night) { n.begun() },
		over:   "doctor",
	},
}

// stallable begins an incident of a member whose disk can stall.
func (n *night) stallable() {
	if runtime.GOOS != "linux" {
		n.Skip("only etcd on Linux can be made to wait for its disk")
	}
	n.cluster(1, testetcd.StallableDisk())
}
