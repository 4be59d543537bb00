package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// problems are the findings that are neither well nor folded.
func (e *Examination) problems() (all []Finding) {
	for _, c := range Causes(e.Findings) {
		if c.Level != OK {
			all = append(all, c.Finding)
		}
	}
	return all
}

// However long etcd does not answer, and whenever it begins to, the checks end in their time. Only the client
// of the trial may take half a second more to close.
func TestChecksEndInTime(t *testing.T) {
	for name, away := range map[string]func(*claimtest.Host){
		"requests vanish": (*claimtest.Host).Cut, "replies vanish": (*claimtest.Host).CutReplies, "connections break": (*claimtest.Host).Break,
	} {
		for _, after := range []time.Duration{0, 150 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, host := examineVirtually(t)
					e.Patience, e.Answer, e.Thorough, e.TTL = 3*time.Second, time.Second, true, time.Hour
					host.SetLatency(20*time.Millisecond, 20*time.Millisecond, 0)
					begun := time.Now()
					time.AfterFunc(after, func() { away(host) })
					e.Examine(t.Context(), true)
					if took := time.Since(begun); took > e.Patience+time.Second/2 {
						t.Errorf("they took %s", took)
					}
					host.Heal()
					time.Sleep(10 * time.Second) // until that client is closed
				})
			})
		}
	}
}

// However many members hang or are stopped, one finding says so. A client that is connected to them finds
// the same as one that is not.
func TestMembersStopped(t *testing.T) {
	t.Parallel()
	members := testetcd.StartProcessCluster(t, 3)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	client := func() *etcdclaims.Client {
		claims, err := etcdclaims.New(testetcd.NewClient(t, clientv3.Config{Endpoints: endpoints}), etcdclaims.Config{Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = claims.Close(t.Context()) })
		return claims
	}
	const patient = 3 * time.Second
	connected := client()
	examine := func(claims *etcdclaims.Client, patient time.Duration) *Examination {
		t.Helper()
		e := &Examination{
			Claims: claims, Limit: 100, Leases: 100, Patience: patient, Answer: patient / 3, TTL: time.Hour, Thorough: true,
			Commands: Commands{Claimctl: "claimctl", Etcdctl: "etcdctl", Member: "etcdctl"},
		}
		e.Examine(t.Context(), true)
		return e
	}
	if problems := examine(connected, time.Minute).problems(); len(problems) > 0 {
		t.Fatalf("all are well: %+v", problems)
	}
	// The leader stays, so that nothing waits for an election.
	for i, endpoint := range endpoints {
		status, err := connected.Etcd().Status(t.Context(), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			members[0], members[i] = members[i], members[0]
		}
	}
	one, two := members[1].Endpoints()[0], members[2].Endpoints()[0]
	silent := func(e *Examination, cause string) {
		t.Helper()
		problems := e.problems()
		if len(problems) != 1 || problems[0].Check != "quorum" || !strings.HasPrefix(problems[0].Detail, cause) {
			t.Fatalf("%+v", problems)
		}
		if command := strings.Join(problems[0].Commands, "\n"); !strings.HasPrefix(command, "etcdctl --endpoints ") || !strings.HasSuffix(command, " endpoint health") {
			t.Errorf("%q", command)
		}
		for _, endpoint := range []string{one, two} {
			if !slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Check == "endpoint "+endpoint && f.After == "quorum" }) {
				t.Errorf("%s: %+v", endpoint, e.Findings)
			}
		}
	}
	members[2].Pause(t)
	for _, claims := range []*etcdclaims.Client{connected, client()} {
		e := examine(claims, patient)
		if problems := e.problems(); len(problems) != 1 || problems[0].Check != "endpoint "+two {
			t.Errorf("one hangs: %+v", problems)
		}
	}
	members[1].Pause(t)
	for _, claims := range []*etcdclaims.Client{connected, client()} {
		silent(examine(claims, patient), "2 of 3 members do not answer, so that etcd has no leader: ")
	}
	members[1].Kill(t)
	members[2].Kill(t)
	silent(examine(client(), patient), "2 of 3 members do not answer, so that etcd has no leader: ")
}

// A client without a user learns that etcd requires one, and nothing that follows from it.
func TestUserRequired(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	withUsers(t, server)
	e := through(t, server.Endpoints()[0], clientv3.Config{})
	e.Examine(t.Context(), true)
	if problems := e.problems(); len(problems) != 1 || problems[0].Check != "auth" {
		t.Errorf("%+v", problems)
	}
	e.has(t, Error, "auth", "etcd requires a user, and this client names none: nothing else was examined")
	e.hasNone(t, "permissions")
}
