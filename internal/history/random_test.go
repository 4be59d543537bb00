package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// A lockService is a lock with leases, and the clients that use it: what happens
// is drawn by lot, one step of one client or of the service at a time. All that
// it does is right.
type lockService struct {
	rnd     *rand.Rand
	h       *history.History
	takes   bool // keys are taken away too
	rev     int64
	owner   map[string]int64
	clients []*lockClient
	// Requests whose clients gave up on them.
	adrift []func()
}

type lockClient struct {
	name   string
	births int
	held   []fencing.Token // believed
	stale  []fencing.Token // not believed any more
	req    *lockRequest    // under way
}

type lockRequest struct {
	call    *history.Call
	granted fencing.Token
	arrive  func() // what the service does, once; nil if it did
	answer  func() // what the client then does with the reply
}

func newLockService(seed uint64) *lockService {
	s := &lockService{rnd: rand.New(rand.NewPCG(seed, 1)), h: history.New(), owner: map[string]int64{}, takes: seed%2 == 0}
	for i := range 4 {
		s.clients = append(s.clients, &lockClient{name: fmt.Sprint("client", i)})
	}
	return s
}

func (s *lockService) run(steps int) {
	for range steps {
		switch s.rnd.IntN(40) {
		case 0:
			s.lapse()
		case 1:
			if !s.takes {
				continue
			}
			key := s.key()
			c := s.h.Take(key)
			s.owner[key] = 0
			c.Done()
		case 2:
			if len(s.adrift) > 0 {
				i := s.rnd.IntN(len(s.adrift))
				s.adrift[i]()
				s.adrift = slices.Delete(s.adrift, i, i+1)
			}
		default:
			s.act(s.clients[s.rnd.IntN(len(s.clients))])
		}
	}
	for _, c := range s.clients {
		if c.req != nil {
			s.reply(c)
		}
	}
}

func (s *lockService) key() string { return fmt.Sprint("key", s.rnd.IntN(2)) }

// lapse ends the lease of an owner who does not believe, and is not about to.
func (s *lockService) lapse() {
	key := s.key()
	for _, c := range s.clients {
		tk := fencing.Token{Key: key, Fence: s.owner[key]}
		if slices.Contains(c.held, tk) || c.req != nil && c.req.granted == tk {
			return
		}
	}
	s.owner[key] = 0
}

func (s *lockService) act(c *lockClient) {
	switch {
	case c.req != nil && c.req.arrive != nil && s.rnd.IntN(8) > 0:
		c.req.arrive()
		c.req.arrive = nil
	case c.req != nil:
		s.reply(c)
	case s.rnd.IntN(60) == 0:
		s.die(c)
	case len(c.held) > 0:
		s.hold(c, s.rnd.IntN(len(c.held)))
	case len(c.stale) > 0 && s.rnd.IntN(3) == 0:
		s.write(c, c.stale[s.rnd.IntN(len(c.stale))])
	default:
		s.acquire(c, s.key())
	}
}

// reply ends the call, known or not.
func (s *lockService) reply(c *lockClient) {
	req := c.req
	c.req = nil
	switch {
	case req.arrive != nil:
		req.call.Unknown()
		if s.rnd.IntN(2) == 0 {
			s.adrift = append(s.adrift, req.arrive)
		}
	case s.rnd.IntN(10) == 0:
		req.call.Unknown()
	default:
		req.answer()
	}
}

func (s *lockService) die(c *lockClient) {
	s.h.Died(c.name)
	c.births++
	*c = lockClient{name: fmt.Sprintf("%s.%d", strings.Split(c.name, ".")[0], c.births), births: c.births}
}

func (s *lockService) hold(c *lockClient, i int) {
	tk := c.held[i]
	switch s.rnd.IntN(6) {
	case 0:
		s.drop(c, i)
		s.h.Ended(c.name, tk)
	case 1, 2:
		s.drop(c, i)
		s.guarded(c, s.h.Release(c.name, tk), tk, func() { s.owner[tk.Key] = 0 })
	case 3:
		s.h.Checked(c.name, tk)
	default:
		s.write(c, tk)
	}
}

func (s *lockService) drop(c *lockClient, i int) {
	c.stale = append(c.stale, c.held[i])
	c.held = slices.Delete(c.held, i, i+1)
}

func (s *lockService) write(c *lockClient, tk fencing.Token) {
	s.guarded(c, s.h.Effect(c.name, tk), tk, func() {})
}

// guarded begins a call that does something if the token is the owner's.
func (s *lockService) guarded(c *lockClient, call *history.Call, tk fencing.Token, do func()) {
	req := &lockRequest{call: call, answer: call.Refused}
	req.arrive = func() {
		if s.owner[tk.Key] == tk.Fence {
			do()
			req.answer = call.Done
		}
	}
	c.req = req
}

func (s *lockService) acquire(c *lockClient, key string) {
	call := s.h.Acquire(c.name, key)
	req := &lockRequest{call: call, answer: call.Refused}
	req.arrive = func() {
		if s.owner[key] != 0 {
			return
		}
		s.rev++
		tk := fencing.Token{Key: key, Fence: s.rev}
		s.owner[key], req.granted = tk.Fence, tk
		req.answer = func() {
			call.Granted(tk.Fence)
			c.held = append(c.held, tk)
		}
	}
	c.req = req
}

// What a right lock service does is right.
func TestRandomHistories(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		s := newLockService(seed)
		s.run(600)
		if err := s.h.Check(history.Checks{}); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, kept(t, s.h))
		}
	}
}

// A record is one line of a kept history.
type record struct {
	Seq     int64  `json:"seq"`
	At      string `json:"at"`
	Kind    string `json:"kind"`
	Call    int64  `json:"call,omitempty"`
	Process string `json:"process,omitempty"`
	Key     string `json:"key,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Text    string `json:"text,omitempty"`
}

type records []record

func (rs records) call(r record) record { return rs[r.Call-1] }

// first returns the place of the first record after another that is as asked
// for, or -1.
func (rs records) first(after int, is func(record) bool) int {
	if i := slices.IndexFunc(rs[after:], is); i >= 0 {
		return after + i
	}
	return -1
}

// A mutation makes one thing wrong, and says where, or -1 if it does not find
// what it looks for. What it makes is wrong for sure.
var mutations = map[string]struct {
	mutate func(rs records, rnd *rand.Rand) int
	rule   history.Rule
}{
	"a stale write is accepted": {func(rs records, rnd *rand.Rand) int {
		return pick(rs, rnd, func(i int, r record) bool {
			if r.Kind != "refused" || rs.call(r).Kind != "effect" {
				return false
			}
			// A greater fence was granted before the call.
			return rs[:r.Call].first(0, func(g record) bool { return g.Kind == "granted" && g.Key == r.Key && g.Fence > r.Fence }) >= 0
		}, func(r *record) { r.Kind = "done" })
	}, history.Linearizable},
	"the owner's write is refused": {func(rs records, rnd *rand.Rand) int {
		return pick(rs, rnd, func(i int, r record) bool {
			if r.Kind != "done" || rs.call(r).Kind != "effect" {
				return false
			}
			// Another of the term is accepted later.
			return rs.first(i, func(w record) bool {
				return w.Kind == "done" && rs.call(w).Kind == "effect" && w.Key == r.Key && w.Fence == r.Fence && w.Call > r.Seq
			}) >= 0
		}, func(r *record) { r.Kind = "refused" })
	}, history.Linearizable},
	"a fence comes again": {func(rs records, rnd *rand.Rand) int {
		var fence int64
		return pick(rs, rnd, func(i int, r record) bool {
			before := rs[:i].first(0, func(g record) bool { return g.Kind == "granted" && g.Key == r.Key })
			if r.Kind != "granted" || before < 0 {
				return false
			}
			fence = rs[before].Fence
			return true
		}, func(r *record) { r.Fence = fence })
	}, history.FencesRise},
	"a fence falls": {func(rs records, rnd *rand.Rand) int {
		var fence int64
		return pick(rs, rnd, func(i int, r record) bool {
			before := rs.first(0, func(g record) bool { return g.Kind == "granted" && g.Key == r.Key })
			if r.Kind != "granted" || before < 0 || rs[before].Seq >= r.Call || rs[before].Fence < 2 {
				return false
			}
			fence = rs[before].Fence - 1
			return true
		}, func(r *record) { r.Fence = fence })
	}, history.FencesRise},
	"the key is granted while it is held": {func(rs records, rnd *rand.Rand) int {
		return pick(rs, rnd, func(i int, r record) bool {
			if r.Kind != "refused" || rs.call(r).Kind != "acquire" {
				return false
			}
			// It was granted before the call, and was written under after it,
			// and nobody took it away in all of the history.
			held := rs.first(0, func(g record) bool {
				return g.Kind == "granted" && g.Key == r.Key && g.Seq < r.Call &&
					rs.first(i, func(w record) bool {
						return w.Kind == "effect" && w.Key == g.Key && w.Fence == g.Fence && w.Process == g.Process
					}) >= 0 &&
					rs[:i].first(0, func(e record) bool {
						return (e.Kind == "ended" || e.Kind == "release") && e.Key == g.Key && e.Fence == g.Fence
					}) < 0
			})
			return held >= 0 && rs.never("take", r)
		}, func(r *record) { r.Kind, r.Fence = "granted", 1_000_000 })
	}, history.OneOwner},
	"a loss that was not noticed": {func(rs records, rnd *rand.Rand) int {
		return pick(rs, rnd, func(i int, r record) bool {
			return r.Kind == "ended" &&
				rs.first(i, func(g record) bool { return g.Kind == "granted" && g.Key == r.Key }) >= 0 &&
				rs.never("take", r) && rs.first(i, func(d record) bool { return d.Kind == "died" && d.Process == r.Process }) < 0
		}, func(r *record) { r.Kind = "log" })
	}, history.OneOwner},
	"checked after the end": {func(rs records, rnd *rand.Rand) int {
		// Instead of a stale write.
		at := pick(rs, rnd, func(i int, r record) bool {
			return r.Kind == "effect" && rs.never("take", r) &&
				rs[:i].first(0, func(g record) bool { return g.Kind == "granted" && g.Key == r.Key && g.Fence > r.Fence }) >= 0
		}, func(r *record) { r.Kind = "checked" })
		if at >= 0 {
			if ret := rs.first(at, func(e record) bool { return e.Call == rs[at].Seq }); ret >= 0 {
				rs[ret].blank()
			}
		}
		return at
	}, history.Linearizable},
	"a wait that does not end": {func(rs records, rnd *rand.Rand) int {
		return pick(rs, rnd, func(i int, r record) bool {
			return r.Kind == "unknown" && rs[r.Call:].first(0, func(d record) bool { return d.Kind == "died" && d.Process == r.Process }) < 0
		}, (*record).blank)
	}, history.CallsReturn},
}

// never says that no such record is about the key of another.
func (rs records) never(kind string, of record) bool {
	return rs.first(0, func(r record) bool { return r.Kind == kind && r.Key == of.Key }) < 0
}

func (r *record) blank() { *r = record{Seq: r.Seq, At: r.At, Kind: "log"} }

// pick changes one of the records that are as asked for.
func pick(rs records, rnd *rand.Rand, is func(i int, r record) bool, change func(r *record)) int {
	var at []int
	for i, r := range rs {
		if is(i, r) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return -1
	}
	i := at[rnd.IntN(len(at))]
	is(i, rs[i]) // it may remember what it found
	change(&rs[i])
	return i
}

// What is made wrong in a right history is found, by the rule that is for it.
func TestMutatedHistories(t *testing.T) {
	const seeds = 60
	for _, name := range slices.Sorted(maps.Keys(mutations)) {
		t.Run(name, func(t *testing.T) {
			m, made := mutations[name], 0
			for seed := range uint64(seeds) {
				s := newLockService(seed)
				s.run(300)
				rs := parse(t, s.h)
				at := m.mutate(rs, rand.New(rand.NewPCG(seed, 2)))
				if at < 0 {
					continue
				}
				made++
				h := rs.history(t)
				if got := rulesOf(t, h, history.Checks{}); !slices.Contains(got, m.rule) {
					t.Fatalf("seed %d: record %d is wrong, and the broken rules are %v\n%s", seed, at+1, got, kept(t, h))
				}
			}
			if made < 10 {
				t.Errorf("made wrong %d times in %d histories", made, seeds)
			}
			t.Logf("made wrong, and caught, %d times", made)
		})
	}
}

func parse(t *testing.T, h *history.History) records {
	t.Helper()
	var rs records
	for line := range strings.Lines(kept(t, h)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func (rs records) history(t *testing.T) *history.History {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, r := range rs {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	h, err := history.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The shortcuts of the search change no verdict: what it finds for histories
// that are right, and that were made wrong, is what is found without them.
func TestShortcutsChangeNothing(t *testing.T) {
	names := slices.Sorted(maps.Keys(mutations))
	compared := map[bool]int{}
	for seed := range uint64(800) {
		s := newLockService(seed)
		s.run(60)
		rs := parse(t, s.h)
		if seed%10 > 1 {
			mutations[names[seed/2%uint64(len(names))]].mutate(rs, rand.New(rand.NewPCG(seed, 3)))
		}
		h := rs.history(t)
		if conflicts, unexplained := history.Conflicts(h); conflicts != unexplained {
			t.Fatalf("seed %d: %d keys with conflicts, %d that no order explains\n%s", seed, conflicts, unexplained, kept(t, h))
		}
		want, decided := history.Explained(h, 300_000)
		if !decided || s.takes {
			continue
		}
		if got := !slices.Contains(rulesOf(t, h, history.Checks{}), history.Linearizable); got != want {
			t.Fatalf("seed %d: explained: %v, without shortcuts: %v\n%s", seed, got, want, kept(t, h))
		}
		compared[want]++
	}
	if compared[true] < 50 || compared[false] < 50 {
		t.Errorf("compared too few that are right or wrong: %v", compared)
	}
	t.Logf("compared: %v", compared)
}
