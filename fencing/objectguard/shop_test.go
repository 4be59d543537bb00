package objectguard_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing/objectguard"
	"github.com/etcdclaims/claims/fencing/objectguard/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fault is what happens to one write.
type fault int

const (
	none      fault = iota
	lost            // it never arrives
	replyLost       // it is carried out, and nobody hears of it
	twice           // the same, and the store's client sends it again by itself
	late            // it arrives after its caller gave it up
	cutOff          // it never arrives, and the caller is gone
	clash           // S3's 409: the store says conflict, with nothing in the way
	denied
)

var errCut = errors.New("connection reset")

// shop is a store such as S3: a version is a digest of the content, and no more.
// What goes wrong says next.
type shop struct {
	mu      sync.Mutex
	objects map[string][]byte
	next    func(name string) fault // of a write; nil: nothing goes wrong
	before  func(name string)       // called before each write is judged
	after   func(name string)       // called after each write
	readErr error
	stale   int // so many reads answer with what was there before the last write
	old     map[string][]byte
	reads   int
	writes  int
	queue   []func() // what is late
}

func version(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

func (s *shop) Read(ctx context.Context, name string) ([]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if err := errors.Join(ctx.Err(), s.readErr); err != nil {
		return nil, "", err
	}
	data, ok := s.objects[name]
	if s.stale > 0 {
		s.stale--
		data, ok = s.old[name]
	}
	if !ok {
		return nil, "", objectguard.ErrNotFound
	}
	return bytes.Clone(data), version(data), nil
}

func (s *shop) Create(ctx context.Context, name string, data []byte) (string, error) {
	return s.write(ctx, name, data, "")
}

func (s *shop) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	return s.write(ctx, name, data, version)
}

func (s *shop) write(ctx context.Context, name string, data []byte, at string) (string, error) {
	s.mu.Lock()
	s.writes++
	next, before, after := s.next, s.before, s.after
	s.mu.Unlock()
	if before != nil {
		before(name)
	}
	f := none
	if next != nil {
		f = next(name)
	}
	data = bytes.Clone(data)
	if after != nil {
		defer after(name)
	}
	switch f {
	case lost:
		return "", errCut
	case replyLost:
		_, _ = s.put(name, data, at)
		return "", errCut
	case twice:
		_, _ = s.put(name, data, at)
		return s.put(name, data, at)
	case late:
		s.mu.Lock()
		s.queue = append(s.queue, func() { _, _ = s.put(name, data, at) })
		s.mu.Unlock()
		return "", errCut
	case cutOff:
		<-ctx.Done()
		return "", ctx.Err()
	case clash:
		return "", fmt.Errorf("%w: ConditionalRequestConflict", objectguard.ErrConflict)
	case denied:
		return "", fmt.Errorf("%w: AccessDenied", objectguard.ErrRefused)
	}
	return s.put(name, data, at)
}

func (s *shop) put(name string, data []byte, at string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[name]
	if exists != (at != "") || exists && version(old) != at {
		return "", fmt.Errorf("%w: PreconditionFailed", objectguard.ErrConflict)
	}
	if s.objects == nil {
		s.objects, s.old = map[string][]byte{}, map[string][]byte{}
	}
	s.old[name], s.objects[name] = old, data
	return version(data), nil
}

// overwrite does what nothing but a guard may do. nil removes the object.
func (s *shop) overwrite(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	if data != nil {
		s.objects[name] = data
	}
}

func (s *shop) content(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.objects[name])
}

// counted returns how many reads and writes there were since the last call.
func (s *shop) counted() [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := [2]int{s.reads, s.writes}
	s.reads, s.writes = 0, 0
	return n
}

// deliver has all arrive that is late, in any order.
func (s *shop) deliver() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	rand.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, arrive := range queue {
		arrive()
	}
}

// inTurn returns faults one after the other, and none when they are used up.
func inTurn(faults ...fault) func(string) fault {
	var mu sync.Mutex
	return func(string) fault {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 {
			return none
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

// atTimes has one write in so many go wrong, in a way that can be made good.
func atTimes(oneIn int) func(string) fault {
	return func(string) fault {
		if rand.IntN(oneIn) > 0 {
			return none
		}
		return []fault{lost, replyLost, twice, late, clash}[rand.IntN(5)]
	}
}

// arriving delivers what is late, again and again, until the test ends.
func arriving(t *testing.T, s *shop) {
	t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(5 * time.Millisecond)):
				s.deliver()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
}

func open(t *testing.T, store objectguard.Store, name string) *objectguard.Object {
	t.Helper()
	o, err := objectguard.New(store, name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStores(t *testing.T) {
	t.Parallel()
	storetest.TestStore(t, func(*testing.T) objectguard.Store { return new(shop) })
}

// The contract of gates, with one write in four gone wrong.
func TestGuardsWithFaults(t *testing.T) {
	t.Parallel()
	storetest.TestGuards(t, func(t *testing.T) objectguard.Store {
		s := &shop{next: atTimes(4)}
		arriving(t, s)
		return s
	})
}
