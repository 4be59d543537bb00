package lease

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/store"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// pulse is how often a client compares its clocks: monotonic time stops while a machine
// sleeps, and timers with it.
const pulse = time.Second

// Notices follows the one prefix of the keys by which others reach this client: its sentinels, and notices of what was
// handed to it, taken from it, or asked of it. It is a hint: what it misses, the next renewal finds.
type Notices struct {
	Pool *Pool
	// Watch begins a watch.
	Watch func(ctx context.Context, key string, opts ...clientv3.OpOption) (events clientv3.WatchChan, stop context.CancelFunc, begun bool)
	// Evicted is called with the notice that a claim was taken away, Handed with one that a key was handed over, and
	// Withdrawn with its id when it is gone. Asked is called with an event of a question to this client, and
	// Question with one that was read.
	Evicted   func(kv *mvccpb.KeyValue)
	Handed    func(kv *mvccpb.KeyValue)
	Withdrawn func(id string)
	Asked     func(ev *clientv3.Event)
	Question  func(kv *mvccpb.KeyValue)
	// Missed is called when events may have been missed, and all keys were read instead. Restored is called after it.
	Missed, Restored func()
}

// Follow follows the notices after a revision, until the client ends.
func (n *Notices) Follow(rev int64) {
	p, io := n.Pool, n.Pool.cfg.Life.IO
	generation := &p.cfg.Store.Generation
	turned := generation.Next()
	for try := 0; ; {
		seen := n.follow(rev, turned)
		if io.Err() != nil {
			return
		}
		if seen > rev {
			rev, try = seen, 0
		}
		// The watch ended: compacted, without leader, or refused; or etcd was
		// restored, and it waits for a revision that is far away. Read what it may have
		// missed, and continue from there.
		turned = generation.Next() // those before are seen by reading
		p.Doubt()
		for {
			read, err := n.Read()
			if err == nil {
				rev = read
				break
			}
			p.cfg.Log.Debug("session notices unreadable", zap.Error(err))
			if !retry.Pause(io, try) {
				return
			}
			try++
		}
		n.Restored()
		if !retry.Pause(io, try) {
			return
		}
		try++
	}
}

func (n *Notices) prefix() string {
	l := n.Pool.cfg.Store.Layout
	return l.Session(l.Instance)
}

// follow returns the last revision it dealt with when the watch ends.
func (n *Notices) follow(rev int64, turned <-chan struct{}) int64 {
	prefix := n.prefix()
	events, stop, _ := n.Watch(n.Pool.cfg.Life.IO, prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	defer stop()
	for {
		var resp clientv3.WatchResponse
		var ok bool
		select {
		case resp, ok = <-events:
		case <-turned:
		}
		if !ok || resp.Err() != nil {
			return rev
		}
		for _, ev := range resp.Events {
			n.heard(strings.TrimPrefix(string(ev.Kv.Key), prefix), ev)
		}
		rev = max(rev, resp.Header.Revision)
	}
}

// heard deals with an event of a key under the client's prefix.
func (n *Notices) heard(name string, ev *clientv3.Event) {
	if of, ok := strings.CutPrefix(name, "live/"); ok && ev.Type == mvccpb.Event_DELETE {
		n.Pool.sentinelGone(of)
	} else if strings.HasPrefix(name, "evict/") && ev.Type == mvccpb.Event_PUT {
		n.Evicted(ev.Kv)
	} else if strings.HasPrefix(name, "ask/") {
		n.Asked(ev)
	} else if id, ok := strings.CutPrefix(name, "won/"); ok && ev.Type == mvccpb.Event_PUT {
		n.Handed(ev.Kv)
	} else if ok {
		n.Withdrawn(id)
	}
}

// Read does by reading what Follow does by events. It returns the revision from which
// on these are to be followed.
func (n *Notices) Read() (rev int64, err error) {
	p, prefix := n.Pool, n.prefix()
	sessions := p.Live() // before the read: younger ones are not judged by it
	there := make(map[string]bool)
	for page, err := range retry.Pages(clientv3.OpGet(prefix, clientv3.WithPrefix()), 256, 1024, n.readPage) {
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = page.Rev // another page can be of a later one
		}
		for _, kv := range page.Kvs {
			there[string(kv.Key)] = true
			if strings.HasPrefix(string(kv.Key), prefix+"evict/") {
				n.Evicted(kv)
			} else if strings.HasPrefix(string(kv.Key), prefix+"ask/") {
				n.Question(kv)
			} else if _, ok := p.cfg.Store.Layout.Noticed(string(kv.Key)); ok {
				n.Handed(kv)
			}
		}
	}
	n.Missed()
	for _, s := range sessions {
		if s.born <= rev && !there[s.Sentinel()] {
			s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		}
	}
	return rev, nil
}

// readPage reads a page of this client's notices, in one attempt.
func (n *Notices) readPage(op clientv3.Op) (*clientv3.GetResponse, error) {
	cfg := n.Pool.cfg
	resp, err := store.RoundTrip(cfg.Life.IO, cfg.Store, store.RequestRange, func(ctx context.Context) (clientv3.OpResponse, error) {
		return cfg.Etcd.Do(ctx, op)
	})
	return resp.Get(), err
}

func (p *Pool) sentinelGone(n string) {
	number, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return
	}
	for _, s := range p.Live() {
		if s.n == number {
			s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		}
	}
}

// KeepPulse looks at the clocks regularly, since a timer does not, while a session is used. One that
// carries nothing has nobody to tell: what wants to use it looks at the clocks itself.
func (p *Pool) KeepPulse() {
	for last := p.cfg.Clock.Now(); ; {
		p.beat(last)
		select {
		case <-p.cfg.Life.IO.Done():
			return
		case last = <-p.used:
		}
	}
}

// noteUse has the pulse begin, if it rests, with the sleep of the machine from now on.
func (p *Pool) noteUse() {
	if len(p.used) > 0 {
		return
	}
	select {
	case p.used <- p.cfg.Clock.Now():
	default:
	}
}

// beat is the pulse until no session is used, or the client ends.
func (p *Pool) beat(last clock.Reading) {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for used := true; used; {
		select {
		case <-p.cfg.Life.IO.Done():
			return
		case <-ticker.C:
			used = false
			now := p.cfg.Clock.Now()
			passed, _ := now.Since(last)
			slept := passed-last.Awake() > pulse/10
			last = now
			for _, s := range p.Live() {
				used = used || s.isUsed()
				if slept {
					for _, m := range MembersOf[Member](s) {
						m.Woke(now)
					}
				}
				s.Enforce()
			}
		}
	}
}
