package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	sec = time.Second
	ttl = 10 * sec
)

// world is one etcd in virtual time, and what the handlers of all members do.
type world struct {
	*testing.T
	server *claimtest.Server
	ctx    context.Context // ends long after the test: a call that would wait for ever fails it

	mu      sync.Mutex
	running map[int]map[string]bool // by partition: members whose handlers run under a claim that holds
	overlap []string
	served  map[served]bool
	ignore  map[string]bool // members whose handlers ignore their contexts
}

// served is a term of a partition in which a handler was called.
type served struct {
	partition int
	fence     int64
}

// virtually runs the test in a world of its own.
func virtually(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		f(&world{
			T: t, server: claimtest.Start(t), ctx: ctx,
			running: make(map[int]map[string]bool), served: make(map[served]bool), ignore: make(map[string]bool),
		})
	})
}

func (w *world) Context() context.Context { return w.ctx }

// process is a member and the machine that it runs on.
type process struct {
	*group.Member
	w      *world
	host   *claimtest.Host
	claims *etcdclaims.Client
	err    error
}

func config(name string, partitions int) group.Config {
	return group.Config{Group: "g", Partitions: partitions, Name: name, Cooldown: sec}
}

// join makes a process a member from a machine of its own.
func (w *world) join(cfg group.Config) *process {
	w.Helper()
	p := w.tryJoin(cfg)
	if p.err != nil {
		w.Fatal(p.err)
	}
	return p
}

func (w *world) tryJoin(cfg group.Config) *process {
	w.Helper()
	host := w.server.Host(w.T)
	return w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: cfg.Name}), cfg)
}

func (w *world) joinFrom(host *claimtest.Host, claims *etcdclaims.Client, cfg group.Config) *process {
	w.Helper()
	p := &process{w: w, host: host, claims: claims}
	p.Member, p.err = group.Join(w.Context(), claims, cfg, func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
		return w.handle(ctx, cfg.Name, partition, claim)
	})
	if p.err == nil {
		w.Cleanup(func() {
			w.mu.Lock()
			clear(w.ignore)
			w.mu.Unlock()
			host.RemoveFaults()
			host.Heal()
			ctx, cancel := context.WithTimeout(context.Background(), 30*sec)
			defer cancel()
			if err := p.Leave(ctx); err != nil {
				w.Errorf("%s: %v", cfg.Name, err)
			}
		})
	}
	return p
}

// leave ends the membership in order, and then the process.
func (p *process) leave() {
	p.w.Helper()
	p.w.ok(p.Leave(p.w.Context()))
	p.w.ok(p.claims.Close(p.w.Context()))
}

// die ends the process without a word to etcd.
func (p *process) die() { p.host.Kill() }

// handle writes to its partition under its fence each second.
func (w *world) handle(ctx context.Context, member string, partition int, claim *etcdclaims.Claim) error {
	w.enter(member, partition, claim)
	defer w.exit(member, partition)
	for n := 0; ; n++ {
		w.mu.Lock()
		ignore := w.ignore[member]
		w.mu.Unlock()
		if ctx.Err() != nil && !ignore {
			return ctx.Err()
		}
		if claim.Check() != nil {
			w.exit(member, partition) // it has no effect any more
		}
		txn, cancel := context.WithTimeout(context.Background(), sec)
		_, err := claim.Txn(txn).Then(clientv3.OpPut(dataKey(partition), fmt.Sprintf("%d %s %d", claim.Fence(), member, n))).Commit()
		cancel()
		if errors.Is(err, etcdclaims.ErrLost) && !ignore {
			return err
		}
		timer := time.NewTimer(sec)
		if ignore {
			<-timer.C
			continue
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func dataKey(partition int) string { return fmt.Sprintf("/data/%05d", partition) }

func (w *world) enter(member string, partition int, claim *etcdclaims.Claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[partition] == nil {
		w.running[partition] = make(map[string]bool)
	}
	for other := range w.running[partition] {
		w.overlap = append(w.overlap, fmt.Sprintf("partition %d: %s begins with fence %d while %s runs", partition, member, claim.Fence(), other))
	}
	w.running[partition][member] = true
	w.served[served{partition, claim.Fence()}] = true
}

// wasServed reports whether a handler was called for the partition in a term.
func (w *world) wasServed(partition int, fence int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served[served{partition, fence}]
}

func (w *world) exit(member string, partition int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running[partition], member)
}

// view returns a view of an observer.
func (w *world) view() *group.View {
	w.Helper()
	return w.viewFrom(w.server)
}

// viewFrom returns a view of an observer whose etcd that is.
func (w *world) viewFrom(etcd claimtest.Etcd) *group.View {
	w.Helper()
	v, err := group.Open(w.Context(), claimtest.NewClient(w.T, etcd, etcdclaims.Config{TTL: ttl}), "g")
	w.ok(err)
	w.Cleanup(v.Close)
	return v
}

// balanced reports whether each partition is owned by the member that the plan gives it.
func balanced(v *group.View) bool {
	return len(v.Assignment().Members) > 0 && len(v.Plan(nil).Moves) == 0
}

// owned reports whether each partition has an owner.
func owned(v *group.View) bool {
	for _, o := range v.Assignment().Owners {
		if o.Member == "" {
			return false
		}
	}
	return true
}

// listed reports whether a member is on the list.
func listed(v *group.View, name string) bool {
	return slices.ContainsFunc(v.Assignment().Members, func(m group.MemberInfo) bool { return m.Name == name })
}

// within waits for a condition, and fails if that takes longer than d. It returns how
// long it took.
func (w *world) within(d time.Duration, what string, met func() bool) time.Duration {
	w.Helper()
	begin := time.Now()
	for !met() {
		if time.Since(begin) > d {
			w.Fatalf("%s: not within %v", what, d)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

func counts(v *group.View) map[string]int {
	n := make(map[string]int)
	for _, o := range v.Assignment().Owners {
		n[o.Member]++
	}
	return n
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantErr(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got error %v, want %v", err, want)
	}
}

func (w *world) wantEvicted(err error) {
	w.Helper()
	if _, evicted := errors.AsType[*group.EvictedError](err); !evicted {
		w.Errorf("got error %v, want an eviction", err)
	}
}

func (w *world) wantText(err error, want string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("got error %v, want %q", err, want)
	}
}

// term is one term of a partition, as etcd's history shows it.
type term struct {
	owner string // label of the client
	kind  string // of a term without an owner
	from  int64  // revision
	over  bool   // it ended without a hand-over: the partition was free then
}

// history reads all that happened from etcd, and fails if a partition had a write of a term
// that was over. It returns the terms of each partition in their order.
func (w *world) history(partitions int) map[int][]term {
	w.Helper()
	admin := w.server.Admin()
	now, err := admin.Get(context.Background(), "\x00")
	w.ok(err)
	end := now.Header.Revision
	terms := make(map[int][]term)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	own := testclaims.Key("", "group/g/partition/")
	_, err = admin.Put(ctx, "/end", "")
	w.ok(err)
	for resp := range admin.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		w.ok(resp.Err())
		for _, ev := range resp.Events {
			key := string(ev.Kv.Key)
			var partition int
			switch {
			case key == "/end" && ev.Kv.ModRevision > end:
				return terms
			case strings.HasPrefix(key, own):
				_, err := fmt.Sscanf(strings.TrimPrefix(key, own), "%d", &partition)
				w.ok(err)
				if ev.Type == clientv3.EventTypeDelete {
					terms[partition][len(terms[partition])-1].over = true
					continue
				}
				owner, kind := "", ""
				for _, f := range []struct {
					name string
					to   *string
				}{{`"owner":"`, &owner}, {`"kind":"`, &kind}} {
					if _, rest, ok := strings.Cut(string(ev.Kv.Value), f.name); ok {
						*f.to, _, _ = strings.Cut(rest, `"`)
					}
				}
				terms[partition] = append(terms[partition], term{owner: owner, kind: kind, from: ev.Kv.ModRevision})
			case strings.HasPrefix(key, "/data/"):
				_, err := fmt.Sscanf(strings.TrimPrefix(key, "/data/"), "%d", &partition)
				w.ok(err)
				var fence int64
				var member string
				_, err = fmt.Sscan(string(ev.Kv.Value), &fence, &member)
				w.ok(err)
				last := terms[partition][len(terms[partition])-1]
				if last.from != fence || last.owner != member || last.over {
					w.Errorf("partition %d: write of %s with fence %d in the term %+v", partition, member, fence, last)
				}
			}
		}
	}
	w.Fatal("the history ends early")
	return nil
}

// moves returns how often partitions went from one owner to another, and how often they were
// free before.
func moves(terms map[int][]term) (moved, free int) {
	for _, of := range terms {
		for i := 1; i < len(of); i++ {
			if of[i].owner != of[i-1].owner {
				moved++
			}
			if of[i-1].over {
				free++
			}
		}
	}
	return moved, free
}

func (w *world) noOverlap() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.overlap {
		w.Error(o)
	}
}

var prefixKeys = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}
