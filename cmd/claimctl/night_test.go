//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An incident is a failure as an operator meets it. A command of claimctl has to show it within half a minute.
// Two minutes later at the latest it is over: by commands that were printed, or by what the manual asks for.
type incident struct {
	stage  func(n *night)
	see    string         // the command
	words  []string       // it prints them
	repair []string       // parts of printed commands of claimctl, each of which is copied
	beyond func(n *night) // what the operator does beside that: to etcd, to a process
	over   string         // the command that shows it; with its code
	code   int            // of it
	gone   string         // what it does not print any more
}

// night is one incident under way.
type night struct {
	*world
	server  *testetcd.Server
	members []*testetcd.Process
	run     *process
	fence   string
}

var incidents = map[string]incident{
	"a member hangs": {
		stage: func(n *night) { n.cluster(); n.members[2].Pause(n.T) },
		see:   "doctor --problems", words: []string{"endpoint ", "does not answer", " endpoint health"},
		beyond: func(n *night) { n.members[2].Resume(n.T) },
		over:   "doctor",
	},
	"two of three members are stopped": {
		stage: func(n *night) { n.cluster(); n.members[1].Kill(n.T); n.members[2].Kill(n.T) },
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
		stage: func(n *night) {
			n.alone(testetcd.Quota(8 << 20))
			for err := error(nil); err == nil; {
				_, err = n.etcd.Put(n.Context(), "/rewritten", strings.Repeat("x", 1<<20))
			}
		},
		see: "doctor", words: []string{"NOSPACE", " compaction --physical ", " defrag --cluster", " alarm disarm", "can be the cause of: space "},
		beyond: func(n *night) { // "etcd is out of space" of the manual
			status, err := n.etcd.Status(n.Context(), n.flags[1])
			n.noErr(err)
			_, err = n.etcd.Compact(n.Context(), status.Header.Revision, clientv3.WithCompactPhysical())
			n.noErr(err)
			_, err = n.etcd.Defragment(n.Context(), n.flags[1])
			n.noErr(err)
			_, err = n.etcd.AlarmDisarm(n.Context(), &clientv3.AlarmMember{})
			n.noErr(err)
		},
		over: "run k -- true",
	},
	"etcd was rewound": {
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
	"all keys are deleted by hand": {
		stage: func(n *night) {
			n.alone()
			n.enqueues()
			n.types(0, "doctor")
			n.noErr(os.WriteFile(filepath.Join(n.dir(), "claims.jsonl"), []byte(n.ok("backup")), 0o600))
			_, err := n.etcd.Delete(n.Context(), n.prefix, clientv3.WithPrefix())
			n.noErr(err)
		},
		see: "doctor", words: []string{"deleted by no operation of claims", " restore -f "},
		repair: []string{" restore -f "},
		over:   "doctor", gone: " restore -f ",
	},
	"a holder is killed": {
		stage: func(n *night) { n.alone(); n.holds(); n.run.signal(syscall.SIGKILL) },
		see:   "explain orders/42", words: []string{"overdue"},
		over: "run --wait 1m orders/42 -- true",
	},
	"a holder is stopped": {
		stage: func(n *night) { n.alone(); n.holds(); n.run.signal(syscall.SIGSTOP) },
		see:   "explain orders/42", words: []string{"overdue"},
		over: "run --wait 1m orders/42 -- true",
	},
	"a holder hangs in its handler": {
		stage: func(n *night) { n.alone(); n.holds() },
		see:   "explain orders/42", words: []string{"api-7", "ago"},
		repair: []string{" release --fence "},
		over:   "run --wait 1m orders/42 -- true",
	},
	"the workers of a queue are gone": {
		stage: func(n *night) { n.alone(); n.enqueues() },
		see:   "doctor", words: []string{`"mail": 1 item waits, the oldest for `, "no worker lives", " queue stats mail"},
		beyond: func(n *night) {
			q, err := queue.New(n.client("worker-2"), queue.Config{Name: "mail"})
			n.noErr(err)
			batch, err := q.TryClaim(n.Context(), 1)
			n.noErr(err)
			n.noErr(batch.Deliveries[0].Complete(n.Context()))
			n.noErr(q.Close(context.Background()))
		},
		over: "doctor", gone: "no worker lives",
	},
	"a queue is paused and forgotten": {
		stage: func(n *night) { n.alone(); n.enqueues(); n.ok("queue", "pause", "mail", "--reason", "INC-311") },
		see:   "doctor", words: []string{`"mail" is paused `, "INC-311"},
		repair: []string{" queue resume mail"},
		over:   "doctor", gone: "is paused",
	},
}

// cluster begins an incident of a cluster of three programs.
func (n *night) cluster() {
	n.members = testetcd.StartProcessCluster(n.T, 3)
	var endpoints []string
	for _, m := range n.members {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	n.world = &world{T: n.T, flags: []string{
		"--endpoints", strings.Join(endpoints, ","),
		"--prefix", testetcd.Prefix(n.T), "--owner", "operator",
	}}
}

// alone begins one of a single member.
func (n *night) alone(opts ...testetcd.Option) {
	n.server = testetcd.Start(n.T, opts...)
	n.world = worldOn(n.T, n.server)
}

// holds has a program hold a key.
func (n *night) holds() {
	file := filepath.Join(n.dir(), "begun")
	n.run = n.start(program(n.T), "run", "--owner", "api-7", "--ttl", "15s", "orders/42", "--",
		"sh", "-c", "echo > "+file+"; exec sleep 120")
	appears(n.T, file)
}

func (n *night) enqueues() {
	q, err := queue.New(n.client("worker-1"), queue.Config{Name: "mail"})
	n.noErr(err)
	_, err = q.Enqueue(n.Context(), queue.NewItem(nil))
	n.noErr(err)
	n.noErr(q.Close(context.Background()))
}

// shows runs a command of the table until what it prints is as wanted, for the given time.
func (n *night) shows(command string, within time.Duration, fits func(r result) bool) (r result, took time.Duration) {
	n.Helper()
	args := strings.Fields(strings.ReplaceAll(command, "FENCE", n.fence))
	for begun := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		if args[0] == "doctor" {
			r = n.doctor(args[1:]...)
		} else {
			r = n.ctl(args...)
		}
		if took = time.Since(begun); fits(r) {
			n.Logf("$ claimctl %s   # exit code %d after %s\n%s%s",
				strings.Join(args, " "), r.code, took.Round(time.Second/10), r.out, r.err)
			return r, took
		}
		if took > within {
			n.Fatalf("claimctl %q in vain for %s: exit code %d: %s%s", args, took, r.code, r.out, r.err)
		}
	}
}

// copies runs the printed command of claimctl that has the part, with a reason if it wants one.
func (n *night) copies(out, part string) {
	n.Helper()
	for line := range strings.Lines(out) {
		if at := strings.Index(line, "claimctl "); at >= 0 && strings.Contains(line, part) {
			args := words(strings.NewReplacer("WHY", "INC-311", "BACKUP", filepath.Join(n.dir(), "claims.jsonl")).Replace(line[at:]))[1:]
			r := execute(n.Context(), append(args, "--owner", "operator"), strings.NewReader(""), n.Output(), n.Output())
			n.Logf("$ claimctl %s   # exit code %d", strings.Join(args, " "), r)
			if r != 0 {
				n.Errorf("%q failed", line)
			}
			return
		}
	}
	n.Fatalf("no command with %q: %s", part, out)
}

// TestNight stages each incident. With -v its log is the transcript.
func TestNight(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases to end")
	}
	for name, is := range incidents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &night{world: &world{T: t}}
			is.stage(n)
			seen, took := n.shows(is.see, 30*time.Second, func(r result) bool {
				for _, word := range is.words {
					if !strings.Contains(r.out, strings.ReplaceAll(word, "FENCE", n.fence)) {
						return false
					}
				}
				return true
			})
			begun := time.Now()
			for _, part := range is.repair {
				n.copies(seen.out, part)
			}
			if is.beyond != nil {
				is.beyond(n)
			}
			n.shows(is.over, 2*time.Minute-time.Since(begun), func(r result) bool {
				return r.code == is.code && (is.gone == "" || !strings.Contains(r.out, is.gone))
			})
			t.Logf("%s: seen after %s, over after %s", name, took.Round(time.Second/10), time.Since(begun).Round(time.Second/10))
			if n.run != nil {
				_ = n.run.cmd.Process.Kill()
			}
		})
	}
}
