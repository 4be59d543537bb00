package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/fencing"
)

// callTimeout is that of Jepsen's client of etcd.
const callTimeout = 5 * time.Second

// A process is one of a workload's, on a machine of its own.
type process struct {
	*rand.Rand
	etcd    *clientv3.Client
	acquire func(context.Context, string) (*hold, error)
}

// sleep sleeps for up to twice d, like Jepsen's rand-int of 2 × latency.
func (p *process) sleep(d time.Duration) { time.Sleep(time.Duration(p.Int64N(int64(2*d) + 1))) }

// An outcome is what is counted in a run.
type outcome struct {
	done, lost       int // for lock: holds, and those that overlap; for sets: additions
	refused, unknown int
}

// A workload has the name that it has in Jepsen's tests of etcd.
type workload struct {
	name  string
	locks []lockKind
	open  func() subject
}

// A subject is what processes work on.
type subject interface {
	// work does one operation under the lock of this name.
	work(ctx context.Context, p *process, name string)
	// outcome is called when all processes have ended, with a client without faults.
	outcome(ctx context.Context, etcd *clientv3.Client) (outcome, error)
}

// Jepsen's own list expects lock and lock-set to fail, and lock-etcd-set to pass.
var workloads = []workload{
	{"lock", []lockKind{plainMutex, checkedMutex, checkedClaim}, func() subject {
		return &holds{spans: map[string][][2]time.Time{}}
	}},
	{"lock-set", []lockKind{plainMutex, checkedMutex, checkedClaim, fencedClaim}, func() subject {
		return &additions{set: &memorySet{elements: map[string][]int{}}, added: map[string][]int{}}
	}},
	{"lock-etcd-set", []lockKind{plainMutex, fencedClaim}, func() subject {
		return &additions{set: etcdSet{}, added: map[string][]int{}}
	}},
}

// work acquires and, after a while, releases.
func (s *holds) work(ctx context.Context, p *process, name string) {
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h, err := p.acquire(waiting, name)
	if err != nil {
		return
	}
	released := s.follow(name, h)
	p.sleep(*latency)
	released()
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	h.release(giving)
}

func (s *holds) outcome(context.Context, *clientv3.Client) (o outcome, _ error) {
	o.done, o.lost = s.overlaps()
	return o, nil
}

// A set is read, and after a while written back with an element more.
type set interface {
	read(ctx context.Context, etcd *clientv3.Client, name string, h *hold) ([]int, error)
	write(ctx context.Context, etcd *clientv3.Client, name string, h *hold, elements []int) error
}

var errRefused = errors.New("refused")

// memorySet is in the memory of the program that controls the test: lock-set.
type memorySet struct {
	mu       sync.Mutex
	gate     fencing.Memory
	elements map[string][]int
}

// read admits the fence too: a write that the owner before makes after it would be
// overwritten.
func (s *memorySet) read(ctx context.Context, _ *clientv3.Client, name string, h *hold) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.elements[name]), s.admit(ctx, h)
}

func (s *memorySet) write(ctx context.Context, _ *clientv3.Client, name string, h *hold, elements []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.admit(ctx, h)
	if err == nil {
		s.elements[name] = elements
	}
	return err
}

func (s *memorySet) admit(ctx context.Context, h *hold) error {
	if h == nil || h.token.IsZero() {
		return nil
	}
	if err := s.gate.Admit(ctx, h.token); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// etcdSet is in etcd, and is written by a transaction that demands that the lock is held:
// lock-etcd-set.
type etcdSet struct{}

func (etcdSet) read(ctx context.Context, etcd *clientv3.Client, name string, _ *hold) (elements []int, err error) {
	resp, err := etcd.Get(ctx, "a-set/"+name)
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	for text := range strings.FieldsSeq(string(resp.Kvs[0].Value)) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		elements = append(elements, n)
	}
	return elements, nil
}

func (etcdSet) write(ctx context.Context, etcd *clientv3.Client, name string, h *hold, elements []int) error {
	text := strings.Trim(fmt.Sprint(elements), "[]")
	resp, err := etcd.Txn(ctx).If(h.guard...).Then(clientv3.OpPut("a-set/"+name, text)).Commit()
	if err == nil && !resp.Succeeded {
		err = errRefused
	}
	return err
}

// additions are those to sets, each under the lock of its name.
type additions struct {
	set set

	mu               sync.Mutex
	next             int
	added            map[string][]int // acknowledged
	refused, unknown int
}

func (a *additions) work(ctx context.Context, p *process, name string) {
	a.mu.Lock()
	a.next++
	element := a.next
	a.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h, err := p.acquire(waiting, name)
	if err != nil {
		return
	}
	whole := context.WithoutCancel(ctx) // what has begun ends
	err = a.add(whole, p, name, h, element)
	a.mu.Lock()
	switch {
	case err == nil:
		a.added[name] = append(a.added[name], element)
	case errors.Is(err, errRefused):
		a.refused++
	default:
		a.unknown++
	}
	a.mu.Unlock()
	giving, cancel := context.WithTimeout(whole, callTimeout)
	defer cancel()
	h.release(giving)
}

func (a *additions) add(ctx context.Context, p *process, name string, h *hold, element int) error {
	reading, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	elements, err := a.set.read(reading, p.etcd, name, h)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	p.sleep(*latency)
	if err := h.check(); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	writing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return a.set.write(writing, p.etcd, name, h, append(elements, element))
}

// outcome counts the acknowledged elements that are not in the sets.
func (a *additions) outcome(ctx context.Context, etcd *clientv3.Client) (outcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := outcome{refused: a.refused, unknown: a.unknown}
	for name, added := range a.added {
		elements, err := a.set.read(ctx, etcd, name, nil)
		if err != nil {
			return o, err
		}
		o.done += len(added)
		for _, element := range added {
			if !slices.Contains(elements, element) {
				o.lost++
			}
		}
	}
	return o, nil
}
