// Package ticks is a world for package search: two processes that run one job, which is due three
// times, on an etcd that is a value. The steps are those that package sched sends: of package tick for
// the ticks, and of package protocol for the claims of runs and for the ownership. What package sched
// does between them is mirrored by events, each of which names what it follows.
//
// Requests about ticks can be lost, late, or carried out twice, and their replies lost. What
// acquires or gives up the ownership, and what takes back a begin whose reply was lost, is carried
// out at once: that claims stand such faults is the subject of another world.
package ticks

import (
	"reflect"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scope is what a search covers.
type Scope struct {
	Name    string
	Quick   bool // it is searched in a second
	Overlap tick.Overlap
	Again   bool // AtLeastOnce
	Spread  bool // each process begins ticks; otherwise the owner does, at once if it can
	Deaf    bool // an owner that begins a tick at once does not see what waits and runs
	Ticks   int  // how many come due
	Limit   int  // how many runs there can be at once; 0 for no limit. Ticks begin in any order then

	Faults  int // of requests and replies
	Ends    int // of processes and of leases
	Pauses  int // by an operator, who then resumes the job
	Deleted int // how often an operator deletes the mark
	Forced  int // how often an operator takes the ownership away
	Fails   int // handlers that fail. Retry has each such tick begin again

	// Recorded has etcd begin as a real one, and remember what is done to it.
	Recorded bool
	// Break changes requests, and Settles what settles an orphan, for tests that show that a fault
	// of a step is found.
	Break   func(k kind, in *pb.TxnRequest)
	Settles func(s *tick.Settle)

	values *sync.Map // what was decoded, by value
}

const (
	prefix = "/e/"
	group  = "g"
	name   = "a"
	limit  = "l"
	starts = 2 // attempts of AtLeastOnce
)

var (
	keys   = tick.NewKeys(prefix, group)
	layout = protocol.Layout{Prefix: prefix}
	epoch  = &txn.Epoch{}
	begin  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minute = calendar.Must(calendar.Every(time.Minute, 0))

	ownerKey  = keyspace.Own(prefix, tick.OwnerClaim(group))
	pausedKey = keys.Paused(name)
	highKey   = keys.High(name)
	specKey   = keys.Spec(name)
	readyDir  = keys.ReadyOf(name)
	runDir    = keys.RunOf(name)
	pastDir   = keys.Records(name)
)

func at(n int8) time.Time { return begin.Add(time.Duration(n) * time.Minute) }

// number returns which tick an id is, from 1 on.
func number(id string) int { return int(id[len("2026-01-01T00:0")] - '0') }

func (s *Scope) job() tick.Job {
	return tick.Job{
		Name: name, Schedule: minute, CatchUp: tick.All, CatchUpMax: 9, Overlap: s.Overlap, Buffer: 9,
		Again: s.Again, MaxStarts: starts, History: 20,
	}
}

// State is a state of the world. It never changes.
type State struct {
	*Scope
	etcd    etcdmodel.State
	minutes int8
	procs   [2]process
	flying  []request // in the order in which they were sent
	left    budget
	told    ledger
}

// budget is how much may still happen.
type budget struct{ faults, ends, pauses, deleted, forced, fails int8 }

// process is a scheduler with its client.
type process struct {
	life  int8  // how often it began; 0 before the first time
	alive bool  //
	gone  bool  // it has left, at the end of a calm run
	lease int64 // of its session, 0 if it has none
	sent  int8  // how many ids it has given

	// The owner's goroutine; see sched/leadership.go.
	term    int64 // the revision of the owner's claim, as it believes, or 0
	mark    tick.Mark
	spec    int64
	paused  bool
	refused bool // a tick could not begin at once
	busy    bool // it waits for a reply

	run   run
	tried bool   // to begin a tick beside a run that is recorded: once, so that states do not repeat without end
	never string // the ids of attempts that are known to have called no handler
}

// run is the run of a process; see sched/starter.go and sched/execute.go.
type run struct {
	phase phase
	run   *tick.Run
	value string
	rev   int64 // of its claim
	lease int64 // that this is on
	try   *protocol.Try
	end   *tick.End // its end, once it was sent
	ended int8      // when that was
	fails bool      // the handler has failed
}

type phase int8

const (
	idle      phase = iota
	beginning       // the request is under way
	undoing         // its reply was lost
	running         // the handler was called, and may have returned
	ending          // the end is under way
	releasing       // the claim is to be given up
)

// ledger is what has happened, as far as the checks need it.
type ledger struct {
	decided [4]bool // by tick, from 1 on
	exempt  [4]bool // an operator has moved the mark over it
	called  [4]int8 // in which attempts the handler was called, a bit for each
	reset   bool    // the mark was deleted
	elected bool    // there was an owner
}

// New returns the states in which a search begins: one registered job, whose first tick is due in a minute.
func New(s Scope) []State {
	s.values = new(sync.Map)
	w := State{Scope: &s, etcd: etcdmodel.New(values.Revisions)}
	w.left = budget{int8(s.Faults), int8(s.Ends), int8(s.Pauses), int8(s.Deleted), int8(s.Forced), int8(s.Fails)}
	if s.Recorded {
		w.etcd = etcdmodel.Recorded()
	}
	in := &pb.TxnRequest{Success: []*pb.RequestOp{
		txn.Put([]byte(specKey), "{}", int64(0)),
		txn.Put([]byte(highKey), keyspace.Instant(begin), int64(0)),
	}}
	w.etcd, _, _ = w.etcd.Txn(in)
	w = w.compact()
	for i := range w.procs {
		w.procs[i].life, w.procs[i].alive = 1, true
		w = w.session(i)
	}
	return []State{w}
}

// Etcd returns the etcd.
func (w State) Etcd() etcdmodel.State { return w.etcd }

// compact forgets what was before.
func (w State) compact() State {
	w.etcd = w.etcd.Compact(w.etcd.Revision())
	return w
}

// get returns a key of etcd, or nil.
func (w State) get(key string) *etcdmodel.Key {
	if k := w.etcd.Get(key); k.Modified > 0 {
		return &k
	}
	return nil
}

func (w State) under(dir string) []*etcdmodel.Key { return w.etcd.Under(dir) }

// decoded returns the value of a key, which is decoded once.
func decoded[T any](w State, k *etcdmodel.Key) T {
	if is, ok := w.values.Load(k.Value); ok {
		return is.(T) //nolint:forcetypeassert // values of two kinds differ
	}
	v, err := tick.Decode[T](k.Name, []byte(k.Value))
	if err != nil {
		panic(err)
	}
	w.values.Store(k.Value, v)
	return v
}

// Append appends the state as bytes. Which numbers its processes have given counts only as far as they are in use.
func (w State) Append(b []byte) []byte {
	at, c := len(b), values.Code(b)
	w.etcd.Walk(&c, func() {})
	left := w.left
	c = append(c, byte(w.minutes), byte(left.faults), byte(left.ends), byte(left.pauses), byte(left.deleted),
		byte(left.forced), byte(left.fails))
	for _, p := range w.procs {
		c = append(c, byte(p.life), flags(p.alive, p.gone, p.paused, p.refused, p.busy, p.tried, p.run.fails), byte(p.run.phase))
		for _, n := range [...]int64{p.lease, p.term, p.mark.Rev, p.spec, p.run.rev, p.run.lease, int64(p.run.ended)} {
			c.Int(n)
		}
		c.Text(p.never)
		c.Text(p.run.value)
	}
	for i := range w.told.decided {
		c = append(c, flags(w.told.decided[i], w.told.exempt[i], w.told.reset, w.told.elected), byte(w.told.called[i]))
	}
	for _, r := range w.flying {
		c = append(c, byte(r.of), byte(r.proc), byte(r.life), flags(r.waited, r.reply != nil))
		c.Text(r.raw)
		c.Text(r.rawReply)
	}
	return values.Rank(c, at)
}

var walker values.Walker

// bytesOf returns bytes that differ for any two messages.
func bytesOf[T pb.TxnRequest | pb.TxnResponse](m *T) string {
	var c values.Code
	walker.Walk(&c, reflect.ValueOf(m))
	return string(c)
}

func flags(all ...bool) (b byte) {
	for i, is := range all {
		if is {
			b |= 1 << i
		}
	}
	return b
}
