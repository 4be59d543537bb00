//go:build unix

package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An incident is a failure as an operator meets it. A command of claimctl has to show it within half a minute.
// Two minutes later at the latest it is over: by commands that were printed, or by what the manual asks for.
type incident struct {
	heading string // of the manual, which describes it
	waits   bool   // for a lease or a clock, so that it begins before the others
	stage   func(n *night)
	see     string                       // the command
	words   []string                     // it prints them
	never   []string                     // it prints none of them
	cause   func(n *night, shown string) // what the operator does before the printed commands
	repair  []string                     // parts of printed commands, each of which is copied
	beyond  func(n *night)               // what the operator does after them: to etcd, to a process
	over    string                       // the command that shows it; with its code
	code    int                          // of it
	gone    string                       // what it does not print any more
}

// night is one incident under way.
type night struct {
	*world
	server  *testetcd.Server
	members []*testetcd.Process
	run     *process
	fence   string
	root    *clientv3.Client // who may do all, if etcd has users
	begun   func()           // ends what the stage has begun
	mend    func()           // mends a program of the stage
	ends    chan string      // what programs of the stage report
}

// cluster begins an incident of a cluster of some programs.
func (n *night) cluster(size int, opts ...testetcd.Option) {
	n.members = testetcd.StartProcessCluster(n.T, size, opts...)
	var endpoints []string
	for _, m := range n.members {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	n.world = &world{T: n.T, prefix: testetcd.Prefix(n.T)}
	n.flags = []string{"--endpoints", strings.Join(endpoints, ","), "--prefix", n.prefix, "--owner", "operator"}
}

// alone begins one of a single member.
func (n *night) alone(opts ...testetcd.Option) {
	n.server = testetcd.Start(n.T, opts...)
	n.world = worldOn(n.T, n.server)
}

// names replaces what only the incident knows.
func (n *night) names(text string) string {
	return strings.NewReplacer("FENCE", n.fence, "PREFIX/", n.prefix).Replace(text)
}

// shows runs a command of the table until what it prints is as wanted, for the given time.
func (n *night) shows(command string, within time.Duration, fits func(r result) bool) (r result, took time.Duration) {
	n.Helper()
	args := strings.Fields(n.names(command))
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

// has returns a test for texts.
func (n *night) has(texts ...string) func(result) bool {
	return func(r result) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(r.out, n.names(text)) })
	}
}

// copies runs the printed command that has the part, with a reason if it wants one.
func (n *night) copies(out, part string) {
	n.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, part) {
			continue
		}
		if at := strings.Index(line, "claimctl "); at >= 0 {
			args := words(strings.NewReplacer("WHY", "INC-311", "BACKUP", filepath.Join(n.dir(), "claims.jsonl")).Replace(line[at:]))[1:]
			r := execute(n.Context(), append(args, "--owner", "operator"), strings.NewReader(""), n.Output(), n.Output())
			n.Logf("$ claimctl %s   # exit code %d", strings.Join(args, " "), r)
			if r != 0 {
				n.Errorf("%q failed", line)
			}
			return
		}
		if strings.HasPrefix(line, "etcdctl ") {
			n.Logf("$ %s", line)
			n.etcdctl(words(line)[1:])
			return
		}
	}
	n.Fatalf("no command with %q: %s", part, out)
}

// incidents are all of them.
func incidents() map[string]incident {
	all := map[string]incident{}
	for _, table := range []map[string]incident{ofEtcd, ofClaims, ofServices} {
		maps.Copy(all, table)
	}
	return all
}

// Each failure that the manual describes is staged.
func TestNightHasTheManual(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(manual(t), "\n## Incidents\n")
	text, _, _ = strings.Cut(text, "\n## ")
	missing := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok && heading != "Who did it" {
			missing[heading] = true
		}
	}
	described := len(missing)
	for name, is := range incidents() {
		if delete(missing, is.heading); is.heading != "" && !strings.Contains(text, "### "+is.heading+"\n") {
			t.Errorf("%s: the manual has no %q", name, is.heading)
		}
	}
	if described < 10 || len(missing) > 0 {
		t.Errorf("of %d failures some are not staged: %v", described, missing)
	}
}

// TestNight stages each incident. With -v its log is the transcript.
func TestNight(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases to end")
	}
	all := incidents()
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if all[a].waits != all[b].waits {
			return map[bool]int{true: -1, false: 1}[all[a].waits]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &night{world: &world{T: t}, ends: make(chan string, 100)}
			n.goes(name, all[name])
		})
	}
}

// goes stages an incident, and looks at its end.
func (n *night) goes(name string, is incident) {
	defer func() {
		if n.begun != nil {
			n.begun()
		}
	}()
	is.stage(n)
	seen, took := n.shows(is.see, 30*time.Second, n.has(is.words...))
	for _, word := range is.never {
		if strings.Contains(seen.out, word) {
			n.Errorf("it prints %q: %s", word, seen.out)
		}
	}
	begun := time.Now()
	if is.cause != nil {
		is.cause(n, seen.out)
	}
	for _, part := range is.repair {
		n.copies(seen.out, part)
	}
	if is.beyond != nil {
		is.beyond(n)
	}
	n.shows(is.over, 2*time.Minute-time.Since(begun), func(r result) bool {
		return r.code == is.code && (is.gone == "" || !strings.Contains(r.out, is.gone))
	})
	n.Logf("%s: seen after %s, over after %s", name, took.Round(time.Second/10), time.Since(begun).Round(time.Second/10))
	if n.run != nil {
		_ = n.run.cmd.Process.Kill()
	}
}

// forget drops the reports so far.
func (n *night) forget() {
	for len(n.ends) > 0 {
		<-n.ends
	}
}

// report is one of a program, unless nobody reads them.
func (n *night) report(text string) {
	select {
	case n.ends <- text:
	default:
	}
}

// reports waits for a report of a program.
func (n *night) reports(want string) {
	n.Helper()
	for {
		select {
		case got := <-n.ends:
			if got == want {
				return
			}
		case <-n.Context().Done():
			return
		case <-time.After(30 * time.Second):
			n.Fatalf("no program reports %q", want)
		}
	}
}
