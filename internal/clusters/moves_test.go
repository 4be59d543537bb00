package clusters_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/claimtest/history"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clusters"
)

var (
	seeds    = flag.Int("seeds", 1, "how many runs of TestMoves")
	first    = flag.Uint64("seed", 1, "the first seed of TestMoves")
	simulate = flag.Duration("simulate", 3*time.Minute, "how long each run of TestMoves lasts, in virtual time")
)

const (
	workers  = 4
	movers   = 2
	claimTTL = 5 * time.Second
)

var (
	names    = []string{"c0", "c1", "c2", "c3", "c4"}
	families = []string{"orders", "mail", "reports"}
)

// TestMoves has five clusters, processes that claim keys of families, and others that move
// families between the clusters because the list of clusters changes. Movers die at any step. Replies are
// lost, connections cut, clusters restarted.
//
// A history of all claims judges: each key has one owner, across all clusters; fences rise; no
// write of a former owner is accepted by etcd. A gate that knows the greatest fence alone judges the same.
func TestMoves(t *testing.T) {
	t.Parallel()
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { move(t, seed) })
		})
	}
}

// fleet is all that takes part in a run.
type fleet struct {
	*testing.T
	*history.History
	servers map[string]*claimtest.Server
	end     time.Time
	random  func(who string) *rand.Rand

	mu     sync.Mutex
	listed []string // the clusters that are in use
	counts map[string]int
	gate   fencing.Memory // of what all write to
}

func move(t *testing.T, seed uint64) {
	f := &fleet{T: t, History: history.New(), servers: map[string]*claimtest.Server{}, listed: names, counts: map[string]int{}, end: time.Now().Add(*simulate)}
	f.random = func(who string) *rand.Rand {
		h := seed
		for _, b := range []byte(who) {
			h = h*1099511628211 + uint64(b)
		}
		return rand.New(rand.NewPCG(seed, h))
	}
	for _, name := range names {
		f.servers[name] = claimtest.Start(t)
	}
	var all sync.WaitGroup
	for i := range workers {
		p := f.process(fmt.Sprint("worker", i))
		all.Go(p.work)
		all.Go(p.suffer)
	}
	for i := range movers {
		p := f.process(fmt.Sprint("mover", i))
		all.Go(p.move)
		all.Go(p.suffer)
	}
	all.Go(f.restart)
	all.Go(f.observe)
	all.Wait()
	f.settle()
	f.Verify(t, history.Checks{Grace: claimTTL})
	for _, what := range []string{"claims", "effects", "moves", "moves that failed", "writes refused by the gate"} {
		if f.counts[what] == 0 && *simulate >= 3*time.Minute {
			t.Errorf("seed %d: there were no %s", seed, what)
		}
	}
	t.Logf("seed %d: %v", seed, f.counts)
}

func (f *fleet) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

// process is one that claims or moves.
type process struct {
	*fleet
	name     string
	r        *rand.Rand
	hosts    map[string]*claimtest.Host // the machine's connections
	families *clusters.Families
	clients  map[string]*etcdclaims.Client
}

func (f *fleet) process(name string) *process {
	p := &process{fleet: f, name: name, r: f.random(name), hosts: map[string]*claimtest.Host{}, clients: map[string]*etcdclaims.Client{}}
	p.families = &clusters.Families{Founders: names[:3], Clusters: map[string]clientv3.KV{}}
	for cluster, server := range f.servers {
		p.hosts[cluster] = server.Host(f)
		p.families.Clusters[cluster] = p.hosts[cluster].Etcd(f)
	}
	return p
}

// client returns the process's client for a family in a cluster.
func (p *process) client(cluster, family string) *etcdclaims.Client {
	id := cluster + "/" + family
	if p.clients[id] == nil {
		p.clients[id] = claimtest.NewClient(p, p.hosts[cluster], etcdclaims.Config{
			Prefix: clusters.Prefix(family), Owner: p.name, TTL: claimTTL,
			Hooks: etcdclaims.Hooks{Lost: func(l *etcdclaims.LostError) { p.Ended(p.name, l.Token) }},
		})
	}
	return p.clients[id]
}

// pause sleeps for up to d.
func (p *process) pause(d time.Duration) { time.Sleep(time.Duration(p.r.Int64N(int64(d)))) }

// work claims keys, each of the name of its family, until the run ends.
func (p *process) work() {
	last := map[string]clusters.Place{} // where families were
	for time.Now().Before(p.end) {
		p.pause(time.Second)
		family := families[p.r.IntN(len(families))]
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		var err error
		if last[family].Cluster == "" || p.r.IntN(2) == 0 { // else the family may have moved long ago
			hint := cmp.Or(last[family].Cluster, names[p.r.IntN(len(names))])
			last[family], err = p.families.Find(ctx, family, hint)
		}
		if err == nil {
			err = p.claim(ctx, family, last[family])
		}
		cancel()
		if err != nil {
			p.count("attempts that failed")
		}
	}
}

// claim claims the key of a family, if it is in this place, and works under the claim.
func (p *process) claim(ctx context.Context, family string, place clusters.Place) error {
	p.pause(100 * time.Millisecond) // it may move meanwhile
	call := p.Acquire(p.name, family)
	claim, err := p.client(place.Cluster, family).TryAcquire(ctx, family, etcdclaims.If(place.Here()))
	call.Acquired(claim, err)
	if err == nil {
		p.count("claims")
		p.hold(claim)
	}
	return err
}

// hold writes under the claim, also after it has ended: a process that was paused does so.
func (p *process) hold(claim *etcdclaims.Claim) {
	token := claim.Token()
	for range p.r.IntN(4) + 1 {
		p.pause(3 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		call := p.Effect(p.name, token)
		resp, err := claim.Txn(ctx).Then(clientv3.OpPut("/effects/"+token.Key, p.name)).Commit()
		cancel()
		if call.Returned(err); err == nil && resp.Succeeded {
			p.count("effects")
		}
		if p.gate.Admit(context.Background(), token) != nil {
			p.count("writes refused by the gate")
		}
	}
	call := p.Release(p.name, token)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	call.Returned(claim.Release(ctx))
}

// move brings families to where they ought to be, until the run ends. Now and then the process dies
// in the middle: it does not go on with the move.
func (p *process) move() {
	for time.Now().Before(p.end) {
		p.pause(8 * time.Second)
		family := families[p.r.IntN(len(families))]
		if p.r.IntN(3) == 0 { // a cluster comes or goes
			p.mu.Lock()
			p.listed = slices.Sorted(maps.Keys(map[string]bool{names[p.r.IntN(5)]: true, names[p.r.IntN(5)]: true, names[p.r.IntN(5)]: true}))
			p.mu.Unlock()
		}
		p.mu.Lock()
		to := clusters.Rank(family, p.listed)[0]
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if p.r.IntN(3) == 0 {
			at := slices.Sorted(maps.Keys(p.hosts))[p.r.IntN(len(p.hosts))]
			fault := p.hosts[at].Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: p.r.IntN(2) == 0, LoseReply: true, Code: codes.Unavailable, Times: -1})
			time.AfterFunc(p.jitter(10*time.Second), fault.Remove)
		}
		call := p.Take(family)
		if err := p.families.Move(ctx, family, to); err != nil {
			call.Unknown()
			p.count("moves that failed")
		} else {
			call.Done()
			p.count("moves")
		}
		cancel()
	}
}

func (p *process) jitter(d time.Duration) time.Duration { return time.Duration(p.r.Int64N(int64(d))) }

// suffer cuts the process off from clusters, until the run ends.
func (p *process) suffer() {
	r := p.random(p.name + "'s network")
	for time.Now().Before(p.end) {
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
		host := p.hosts[names[r.IntN(len(names))]]
		if r.IntN(2) == 0 {
			host.Cut()
		} else {
			host.CutReplies()
		}
		time.Sleep(time.Duration(r.Int64N(int64(8 * time.Second))))
		host.Heal()
	}
}

// restart restarts clusters, until the run ends.
func (f *fleet) restart() {
	r := f.random("operator")
	for time.Now().Before(f.end) {
		time.Sleep(time.Duration(r.Int64N(int64(time.Minute))))
		f.servers[names[r.IntN(len(names))]].Restart(f)
	}
}

// observe reads the records of all clusters, again and again: no record that is read later may be that
// of an older home than one that was read before.
func (f *fleet) observe() {
	r := f.random("observer")
	etcds := map[string]*clientv3.Client{}
	for name, server := range f.servers {
		etcds[name] = server.Etcd(f)
	}
	latest, homes := map[string]int64{}, map[string]string{} // of each family, and of each family and generation
	for time.Now().Before(f.end) {
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		for _, i := range r.Perm(len(names)) {
			for _, family := range families {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				record, err := clusters.Read(ctx, etcds[names[i]], family)
				cancel()
				if err != nil || record.Generation == 0 || record.MovedTo != "" {
					continue
				}
				id := fmt.Sprint(family, " ", record.Generation)
				if home := homes[id]; home != "" && home != names[i] {
					f.Errorf("family %s, generation %d: at home in %s and in %s", family, record.Generation, home, names[i])
				}
				if homes[id] = names[i]; record.Generation < latest[family] {
					f.Errorf("family %s: %s is the home of generation %d after there was %d", family, names[i], record.Generation, latest[family])
				}
				latest[family] = record.Generation
			}
		}
	}
}

// settle shows that each family can be claimed once all faults are over and the leases of
// the dead have ended.
func (f *fleet) settle() {
	time.Sleep(claimTTL + time.Second)
	p := f.process("last")
	for _, family := range families {
		place, err := p.families.Find(f.Context(), family, "")
		if err != nil {
			f.Fatal(err)
		}
		call := p.Acquire(p.name, family)
		claim, err := p.client(place.Cluster, family).TryAcquire(f.Context(), family, etcdclaims.If(place.Here()))
		if call.Acquired(claim, err); err != nil {
			f.Errorf("family %s cannot be claimed in %s: %v", family, place.Cluster, err)
		}
	}
}
