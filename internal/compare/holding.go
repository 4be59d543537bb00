package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// holding is what it costs to hold many claims and do nothing else. It is measured once: it
// takes long, and what it measures hardly varies.
func holding(o options) workload {
	w := workload{
		name: "holding", rounds: 1,
		title: fmt.Sprintf("Holding claims for %v, TTL %v", o.hold, etcdclaims.DefaultTTL),
	}
	for i, n := range o.claims {
		p := point{name: fmt.Sprint(n, " claims"), n: n, rows: []row{{name: claimsRow, measure: taker(holdClaims).measure}}}
		if i == 0 { // more would take long
			p.rows = append(p.rows, row{name: "etcd Mutex, a session per lock", measure: taker(holdSessions).measure})
		}
		w.points = append(w.points, p)
	}
	return w
}

// waiting is what it costs to wait for keys that others hold.
func waiting(o options) workload {
	return workload{
		name: "waiting", rounds: 1,
		title:  fmt.Sprintf("Callers of one client that wait for keys of another for %v, %d for each key", o.hold, waitersPerKey),
		points: []point{{name: "1000 waiters", n: 1000, rows: []row{{name: claimsRow, measure: taker(waitForClaims).measure}}}},
	}
}

// processes is what it costs that many processes, each with a client, hold a few claims.
func processes(o options) workload {
	w := workload{
		name: "processes", rounds: 1,
		title: fmt.Sprintf("Clients with a connection each that hold %d claims each for %v, TTL %v", claimsEach, o.hold, etcdclaims.DefaultTTL),
	}
	for _, n := range o.clients {
		w.points = append(w.points, point{name: fmt.Sprint(n, " clients"), n: n, rows: []row{
			{name: claimsRow, measure: measureMany(holdClaims)},
			{name: "etcd Mutex, a session per client", measure: measureMany(holdMutexes)},
		}})
	}
	return w
}

// claimsEach is how many claims each of many clients holds.
const claimsEach = 10

// A taker has n of something by a client, until drop is called.
type taker func(ctx context.Context, etcd *clientv3.Client, n int) (drop func(), err error)

func (take taker) measure(ctx context.Context, st *stage, n int) (sample, error) {
	return rest(ctx, st, 1, func(f *fleet) (func(), error) { return take(ctx, f.of(0), n) }, n)
}

// measureMany measures clients that each take a few.
func measureMany(take taker) measurer {
	return func(ctx context.Context, st *stage, n int) (sample, error) {
		return rest(ctx, st, n, func(f *fleet) (func(), error) {
			drops := make([]func(), n)
			drop := func() { _ = each(16, n, func(i int) error { drops[i](); return nil }) }
			if err := each(16, n, func(i int) (err error) {
				drops[i], err = take(ctx, f.of(i), claimsEach)
				return err
			}); err != nil {
				return nil, err // what was taken ends with etcd
			}
			return drop, nil
		}, n)
	}
}

// rest measures what clients need while they have what they took, for each of n.
func rest(ctx context.Context, st *stage, clients int, take func(f *fleet) (drop func(), err error), n int) (sample, error) {
	w, err := newFleet(st, clients)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := each(16, clients, func(i int) error { // what the connections take is not the claims'
		_, err := w.of(i).Get(ctx, "connected")
		return err
	}); err != nil {
		return nil, err
	}
	before := inUse()
	drop, err := take(w)
	if err != nil {
		return nil, err
	}
	defer drop()
	if !retry.Sleep(ctx, st.settle) {
		return nil, ctx.Err()
	}
	s := sample{memory: (inUse() - before) / float64(n)}

	used := func() (int64, time.Duration, time.Duration) {
		return w.sent.Load(), cpuTime(os.Getpid()), cpuTime(st.etcd.Members[0].Pid())
	}
	sent, client, server := used()
	if !retry.Sleep(ctx, st.hold) {
		return nil, ctx.Err()
	}
	sentNow, clientNow, serverNow := used()
	seconds := st.hold.Seconds()
	s[requesting] = float64(sentNow-sent) / seconds
	if kept := resident(st.etcd.Members[0].Pid()); kept > 0 {
		s[etcdMemory] = kept / (1 << 20)
	}
	if client > 0 && server > 0 { // they are known
		s[clientCPU] = (clientNow - client).Seconds() / seconds * 100
		s[etcdCPU] = (serverNow - server).Seconds() / seconds * 100
	}
	return s, nil
}

// inUse returns bytes in use, not those that the garbage collector has yet to find. Stacks
// count: a peer has goroutines for each of its locks.
func inUse() float64 {
	runtime.GC()
	runtime.GC() // what had finalizers, and the pools' victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// holdClaims keeps what a user has to: each Claim, and through it the key.
func holdClaims(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix()})
	if err != nil {
		return nil, err
	}
	claims, errs := make([]*etcdclaims.Claim, 0, n), []error(nil)
	for keys := range slices.Chunk(names("invoice/2026/", n), 5000) {
		got, failed := c.TryAcquireEach(ctx, keys)
		claims, errs = append(claims, got...), append(errs, failed...)
	}
	if err := errors.Join(errs...); err != nil {
		closeClaims(c)
		return nil, err
	}
	return func() {
		closeClaims(c)
		runtime.KeepAlive(claims)
	}, nil
}

func holdSessions(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	mutexes, sessions := make([]*concurrency.Mutex, n), make([]*concurrency.Session, n)
	keys := names(prefix()+"invoice/2026/", n)
	drop := func() {
		// Not revoked one by one: etcd and all that is in it are gone after this.
		for _, s := range sessions {
			if s != nil {
				s.Orphan()
			}
		}
		runtime.KeepAlive(mutexes)
	}
	if err := each(64, n, func(i int) (err error) {
		if sessions[i], err = session(etcd); err != nil {
			return err
		}
		mutexes[i] = concurrency.NewMutex(sessions[i], keys[i])
		return mutexes[i].Lock(ctx)
	}); err != nil {
		drop()
		return nil, err
	}
	return drop, nil
}

// holdMutexes has one session.
func holdMutexes(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	s, err := session(etcd)
	if err != nil {
		return nil, err
	}
	for _, key := range names(prefix()+"invoice/2026/", n) {
		if err := concurrency.NewMutex(s, key).Lock(ctx); err != nil {
			s.Orphan()
			return nil, err
		}
	}
	return s.Orphan, nil
}

// names returns n keys.
func names(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return keys
}

// waitersPerKey is how many callers wait for each key.
const waitersPerKey = 10

// waitForClaims has n callers wait for keys that another client holds.
func waitForClaims(ctx context.Context, etcd *clientv3.Client, n int) (drop func(), err error) {
	at := prefix()
	held, err1 := etcdclaims.New(etcd, etcdclaims.Config{Prefix: at})
	c, err2 := etcdclaims.New(etcd, etcdclaims.Config{Prefix: at})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	drop = func() {
		cancel()
		all.Wait()
		closeClaims(c)
		closeClaims(held)
	}
	keys := names("invoice/2026/", n/waitersPerKey)
	_, errs := held.TryAcquireEach(ctx, keys)
	if err := errors.Join(errs...); err != nil {
		drop()
		return nil, err
	}
	for i := range n {
		all.Go(func() { _, _ = c.Acquire(waiting, keys[i%len(keys)]) }) // it ends with waiting
	}
	for {
		resp, err := etcd.Get(ctx, at+"wait/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && resp.Count == int64(n) {
			return drop, nil
		}
		retry.Sleep(ctx, 50*time.Millisecond)
		if err = errors.Join(err, ctx.Err()); err != nil {
			drop()
			return nil, err
		}
	}
}

// resident returns the bytes of memory that a process has, 0 where there is no /proc.
func resident(pid int) float64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // 0 is not known
	return pages * float64(os.Getpagesize())
}

// cpuTime returns what a process has used so far, 0 where there is no /proc.
func cpuTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name is in parentheses and may hold any field. After it, the state is the third
	// field; user and system time are the 14th and 15th, in hundredths of a second.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	if userErr != nil || systemErr != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
