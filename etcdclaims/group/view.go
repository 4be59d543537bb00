package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// View is what a process knows of a group: its members, and the owner of each partition. It
// follows etcd by watches, so it is late by milliseconds, or by seconds if etcd does not
// answer. It is safe for concurrent use. At rest it sends one read each 10 s, and one for
// each renewal interval of the client (a third of the TTL).
type View struct {
	claims     *etcdclaims.Client
	keys       keys
	partitions int
	log        *zap.Logger
	opened     time.Time

	ctx     context.Context
	stop    context.CancelFunc
	forget  func() // of the client
	wg      sync.WaitGroup
	streams feed.Streams // of the watch of members

	mu      sync.Mutex
	changed chan struct{}         // closed at the next change
	rev     int64                 // of the last read of the members; 0: none yet
	synced  bool                  // the owners have been read
	list                          // as it was read last
	known   map[string]MemberInfo // by instance, also of those that left and still own partitions
	seen    map[string]time.Time  // by instance: since when it is a member
	owners  []Owner               // by partition
	tenures []tenure              // by partition
	moves   []time.Time           // when partitions moved between members
	listed  time.Time             // when the list of members last changed
	unrest  time.Time             // when the first of the changes that led to it without a pause came
}

const (
	relist      = 10 * time.Second // the longest that a lost event of a member goes unnoticed
	settleTime  = 20 * time.Millisecond
	agreeTime   = time.Second // in which all members learn of a change of the list
	readTimeout = 5 * time.Second
)

// Open returns a view of a group that exists. It is for operators, and for processes that
// send requests to members. A member has a view already: see Member.View. ctx bounds the call. The
// error matches ErrNoGroup if no process has joined the group yet. It matches
// etcdclaims.ErrInvalidKey if no group can have the name, and etcdclaims.ErrPassthrough if the
// client has no etcd, or etcdclaims.ErrClosed if it is closed. End the view with Close. Close of the client does that, too.
func Open(ctx context.Context, claims *etcdclaims.Client, name string) (*View, error) {
	if err := claimerr.CheckName("group", name); err != nil {
		return nil, err
	}
	if err := needsEtcd(claims, name); err != nil {
		return nil, err
	}
	v, err := open(ctx, claims, name)
	if err != nil {
		return nil, errtext.Wrap(fmt.Sprintf("open group %q", name), err)
	}
	return v, nil
}

func open(ctx context.Context, claims *etcdclaims.Client, name string) (*View, error) {
	k := newKeys(claims.Prefix(), name)
	resp, err := read(ctx, core.Of(claims).KV(), clientv3.OpGet(k.spec()))
	if err != nil {
		return nil, err
	}
	kvs := txn.Kvs(resp, 0)
	if len(kvs) == 0 {
		return nil, ErrNoGroup
	}
	s, err := decode[spec](k.spec(), kvs[0].Value)
	if err != nil {
		return nil, err
	}
	v := newView(claims, k, s.Partitions, attach.Logger(claims, zap.NewNop).With(zap.String("group", name)))
	v.forget = attach.Of(claims).OnClose(func(context.Context) { v.end() })
	if err := v.until(ctx, func() bool { return v.rev > 0 && v.synced }); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func newView(claims *etcdclaims.Client, k keys, partitions int, log *zap.Logger) *View {
	v := &View{
		claims: claims, keys: k, partitions: partitions, log: log, forget: func() {}, opened: clock.Mono(), changed: make(chan struct{}),
		known: make(map[string]MemberInfo), seen: make(map[string]time.Time),
		owners: make([]Owner, partitions), tenures: make([]tenure, partitions),
	}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.wg.Go(v.followMembers)
	v.wg.Go(v.followOwners)
	return v
}

// Close ends the view. It returns when its watches have ended.
func (v *View) Close() {
	defer v.forget()
	v.end()
}

func (v *View) end() {
	v.stop()
	v.wg.Wait()
}

// read carries out operations that change nothing.
func read(ctx context.Context, kv clientv3.KV, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := retry.Read(ctx, kv, readTimeout, ops...)
	return resp, txn.Denied(err)
}

// change notes that the view has changed. The mutex is held.
func (v *View) change() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// news returns a channel that is closed at the next change.
func (v *View) news() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// until waits for a condition, which is called with the mutex held.
func (v *View) until(ctx context.Context, met func() bool) error {
	defer attach.Of(v.claims).Await("group " + v.keys.group)()
	for {
		v.mu.Lock()
		ok, changed := met(), v.changed
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.ctx.Done():
			return fmt.Errorf("view closed: %w", etcdclaims.ErrClosed)
		}
	}
}

// followMembers keeps the members up to date. A watch is only a hint to read them again:
// they are few, and a read is right whatever the watch has missed.
func (v *View) followMembers() {
	failing := false
	retry.Forever(v.ctx, func() (progress bool) {
		rev, err := v.readMembers()
		if err != nil && !failing && v.ctx.Err() == nil {
			v.log.Warn("cannot read the members; retrying", zap.String("etcd_key", v.keys.root), zap.Error(err))
		}
		failing = err != nil
		return err == nil && v.watchMembers(rev)
	})
}

// watchMembers reads the members again after each change and from time to time, until the
// watch must be started anew. It reports whether the watch worked.
func (v *View) watchMembers(rev int64) (well bool) {
	news, stop := v.streams.Open(v.ctx, v.claims.Etcd(), readTimeout, v.keys.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	defer stop()
	again := time.NewTicker(relist)
	defer again.Stop()
	for {
		select {
		case resp, ok := <-news:
			if !ok || resp.Err() != nil {
				return well
			}
			well = true
			retry.Sleep(v.ctx, settleTime) // many join or leave at once
			for more := true; more; {
				select {
				case _, more = <-news:
				default:
					more = false
				}
			}
		case <-again.C:
		}
		if now, err := v.readMembers(); err != nil || now < rev {
			return well // etcd is unreachable, or was restored
		}
	}
}

// readMembers replaces what the view knows of members.
func (v *View) readMembers() (rev int64, err error) {
	resp, err := read(v.ctx, core.Of(v.claims).KV(), clientv3.OpGet(v.keys.root, clientv3.WithPrefix()))
	if err != nil {
		return 0, err
	}
	now := clock.Mono()
	l := newList(v.keys.root, txn.Kvs(resp, 0))
	for _, err := range l.strange {
		v.log.Warn("member ignored: its entry cannot be read", zap.Error(err))
	}
	rev = resp.Header.Revision
	v.mu.Lock()
	defer v.mu.Unlock()
	first := v.rev == 0
	v.rev = rev
	maps.Copy(v.known, l.process)
	if !first && l.equal(v.list) {
		return rev, nil
	}
	if now.Sub(v.listed) >= agreeTime {
		v.unrest = now
	}
	v.list, v.listed = l, now
	present := make(map[string]bool)
	for instance := range l.process {
		present[instance] = true
	}
	for _, m := range l.members {
		if m.Instance == "" {
			continue
		}
		present[m.Instance] = true
		v.known[m.Instance] = m
		if _, ok := v.seen[m.Instance]; !ok {
			v.seen[m.Instance] = now
		}
	}
	maps.DeleteFunc(v.seen, func(instance string, _ time.Time) bool { return !present[instance] })
	for _, o := range v.owners {
		present[o.Instance] = true
	}
	if v.synced {
		maps.DeleteFunc(v.known, func(instance string, _ MemberInfo) bool { return !present[instance] })
	}
	v.change()
	return rev, nil
}

// followOwners keeps the owners up to date.
func (v *View) followOwners() {
	retry.Forever(v.ctx, func() (progress bool) {
		fresh, begun := make([]Owner, v.partitions), false
		for ev, err := range v.claims.Watch(v.ctx, v.keys.partitions()) {
			if err != nil {
				if v.ctx.Err() == nil && !errors.Is(err, etcdclaims.ErrClosed) {
					v.log.Warn("cannot watch the partitions; retrying", zap.String("key", v.keys.partitions()), zap.Error(err))
				}
				break
			}
			partition, ok := v.keys.partitionOf(ev.Info.Key)
			switch {
			case ev.Kind == etcdclaims.Synced:
				begun = true
				v.own(fresh)
			case !ok || partition >= v.partitions:
			case !begun:
				fresh[partition] = ownerOf(ev)
			default:
				v.ownOne(partition, ownerOf(ev))
			}
		}
		return begun
	})
}

// ownerOf returns the owner that an event shows. What holds a key for a handler that did
// not stop is no owner: it has a token, but no instance.
func ownerOf(ev etcdclaims.Event) Owner {
	if ev.Kind != etcdclaims.Claimed {
		return Owner{}
	}
	o := Owner{Token: fencing.Token{Key: ev.Info.Key, Fence: ev.Info.Fence}}
	if ev.Info.Kind == "" {
		o.Instance = ev.Info.Instance
	}
	return o
}

func (v *View) own(owners []Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for partition, o := range owners {
		v.set(partition, o)
	}
	v.synced = true
	v.change()
}

func (v *View) ownOne(partition int, o Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.set(partition, o)
	v.change()
}

// set notes the owner of a partition, and whether the partition has moved from a member that is
// still there. A partition that such a member gave up without its handler has moved already: its
// next owner follows when the key is free. The mutex is held.
func (v *View) set(partition int, o Owner) {
	if o.Token.Fence == 0 { // it is free
		v.owners[partition] = Owner{}
		return
	}
	t, now := &v.tenures[partition], clock.Mono()
	if t.since.IsZero() {
		t.since = now
	} else if t.instance != o.Instance {
		t.passed = true
		if _, there := v.seen[t.instance]; there {
			v.moves = append(v.moves[max(0, len(v.moves)-maxPartitions):], now)
		}
	}
	t.instance = o.Instance
	if o.Instance == "" {
		o = Owner{}
	}
	v.owners[partition] = o
}

// agreed returns how long it is until all members have the same list, as far as their
// views are not late. A list that changes all the time delays moves by most at the most.
func (v *View) agreed(most time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return min(time.Until(v.listed.Add(agreeTime)), time.Until(v.unrest.Add(max(most, agreeTime))))
}

// age returns how long this view has known an instance as a member.
func (v *View) age(instance string) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if since, ok := v.seen[instance]; ok {
		return time.Since(since)
	}
	return 0
}

// cooling returns how long the move of a partition to an instance still waits for a cool-down.
func (v *View) cooling(cooldown time.Duration, partition int, to string) time.Duration {
	age, now := v.age(to), clock.Mono()
	v.mu.Lock()
	defer v.mu.Unlock()
	return cooling(cooldown, age, now.Sub(v.listed), v.tenures[partition], now)
}

// gathering returns how long an instance that has just joined still waits for other members.
func (v *View) gathering(a Assignment, instance string) time.Duration {
	begun := slices.ContainsFunc(a.Owners, func(o Owner) bool { return o.Instance != "" || o.Reserved != "" })
	age := v.age(instance)
	v.mu.Lock()
	defer v.mu.Unlock()
	return gathering(begun, age, time.Since(v.listed))
}

// moved returns how many partitions moved within the last d. Before the view is as old, it may
// not know of all, and returns at least most.
func (v *View) moved(d time.Duration, most int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := clock.Mono()
	for len(v.moves) > 0 && now.Sub(v.moves[0]) >= d {
		v.moves = v.moves[1:]
	}
	if now.Sub(v.opened) < d {
		return max(most, len(v.moves))
	}
	return len(v.moves)
}
