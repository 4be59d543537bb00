package scenarios_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// A cluster is what a nemesis makes faults in. Its methods are for the goroutine of the
// test.
type cluster interface {
	claimtest.Etcd
	// host returns a new machine for a process.
	host(t *testing.T) *claimtest.Host
	// begin begins a fault, and returns what ends it.
	begin(t *testing.T, r *rand.Rand, fault string) (end func())
}

// disturb makes faults for the time limit. It returns how many, once all have ended.
func disturb(t *testing.T, c cluster) (faults int) {
	t.Helper()
	r := rand.New(rand.NewPCG(*jepsenSeed, 0))
	quiet := func() { time.Sleep(time.Duration(r.Int64N(int64(2 * *nemesisEvery)))) }
	kinds := strings.Split(*nemeses, ",")
	time.Sleep(5 * time.Second) // as Jepsen's does
	for until := time.Now().Add(*timeLimit); time.Now().Before(until); faults++ {
		kind := kinds[r.IntN(len(kinds))]
		if kind == "none" {
			time.Sleep(time.Until(until))
			return 0
		}
		end := c.begin(t, r, kind)
		quiet()
		end()
		quiet()
	}
	return faults
}

// member is one member in virtual time, which cannot be without a leader. What a process
// sees of a member that is paused or on the wrong side of a partition is a cut network,
// while leases run out.
type member struct {
	*claimtest.Server
	hosts []*claimtest.Host
}

func newMember(t *testing.T) *member {
	t.Helper()
	return &member{Server: claimtest.Start(t)}
}

func (m *member) host(t *testing.T) *claimtest.Host {
	t.Helper()
	m.hosts = append(m.hosts, m.Server.Host(t))
	return m.hosts[len(m.hosts)-1]
}

func (m *member) begin(t *testing.T, r *rand.Rand, fault string) (end func()) {
	t.Helper()
	n := 1
	switch fault {
	case "pause":
	case "partition":
		n = len(m.hosts)/2 + 1
	case "kill":
		m.Stop(t)
		return func() { m.Restart(t) }
	default:
		t.Fatalf("no nemesis is called %q: there are pause, partition, kill and none", fault)
	}
	cut := r.Perm(len(m.hosts))[:n]
	for _, i := range cut {
		m.hosts[i].Cut()
	}
	return func() {
		for _, i := range cut {
			m.hosts[i].Heal()
		}
	}
}

// members are five, each a process, in real time.
type members struct {
	*claimtest.Members
	hosts []*claimtest.Host
}

func newMembers(t *testing.T) *members {
	t.Helper()
	return &members{Members: claimtest.Processes(t, 5)}
}

// host returns a machine that is connected to all members, where Jepsen's is to one.
func (m *members) host(t *testing.T) *claimtest.Host {
	t.Helper()
	m.hosts = append(m.hosts, m.Members.Host(t))
	return m.hosts[len(m.hosts)-1]
}

// begin pauses or kills the leader or all members, or cuts a majority of the processes
// off a majority of the members.
func (m *members) begin(t *testing.T, r *rand.Rand, fault string) (end func()) {
	t.Helper()
	chosen := []int{m.Leader(t)}
	if r.IntN(2) == 0 {
		chosen = r.Perm(m.Len())
	}
	var hit, heal func(i int)
	switch fault {
	case "pause":
		hit, heal = func(i int) { m.Pause(t, i) }, func(i int) { m.Resume(t, i) }
	case "kill":
		hit, heal = func(i int) { m.Kill(t, i) }, func(i int) { m.Restart(t, i) }
	case "partition":
		chosen = r.Perm(len(m.hosts))[:len(m.hosts)/2+1]
		hit, heal = func(i int) {
			for _, endpoint := range m.Endpoints()[:m.Len()/2+1] {
				m.hosts[i].Hang(endpoint)
			}
		}, func(i int) { m.hosts[i].Heal() }
	default:
		t.Fatalf("no nemesis is called %q: there are pause, partition, kill and none", fault)
	}
	for _, i := range chosen {
		hit(i)
	}
	return func() {
		for _, i := range chosen {
			heal(i)
		}
	}
}
