package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The alarms are those in the status of the members, each once, in the texts of all versions of
// etcd. Other errors stay with their member.
func TestAlarms(t *testing.T) {
	t.Parallel()
	status := func(faults ...string) answer {
		return answer{endpoint: "h", status: (*clientv3.StatusResponse)(&pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: 1}, Leader: 1, Version: "3.7.3", Errors: faults})}
	}
	space := (&pb.AlarmMember{MemberID: 255, Alarm: pb.AlarmType_NOSPACE}).String()
	var e Examination
	answers := []answer{status(space), status("memberID:255 alarm:NOSPACE ", "memberID:16  alarm:CORRUPT", "disk on fire")}
	e.endpoints(answers)
	e.alarms(answers)
	e.has(t, Error, "alarms", "member ff has the alarm NOSPACE")
	e.has(t, Error, "alarms", "member 10 has the alarm CORRUPT")
	e.has(t, Error, "endpoint h", "disk on fire")
	if n := len(slices.DeleteFunc(e.Findings, func(f Finding) bool { return f.Level != Error })); n != 3 {
		t.Errorf("%d errors: %+v", n, e.Findings)
	}
	e.Findings = nil
	e.alarms([]answer{status()})
	e.has(t, OK, "alarms", "none")
}

// What is printed for a full etcd frees space in this order. It is printed once, also before etcd is full.
func TestMakeRoom(t *testing.T) {
	t.Parallel()
	e := Examination{Commands: Commands{Etcdctl: "etcdctl"}}
	room := []string{"etcdctl compaction --physical --command-timeout 10m 81234", "etcdctl defrag --cluster --command-timeout 10m"}
	full := (&pb.AlarmMember{MemberID: 255, Alarm: pb.AlarmType_NOSPACE}).String()
	for rev, want := range map[int64][]string{0: nil, 81234: room} {
		status := (*clientv3.StatusResponse)(&pb.StatusResponse{
			Header: &pb.ResponseHeader{Revision: rev}, Errors: []string{full}, DbSize: 9, DbSizeQuota: 10,
		})
		e.Findings = nil
		e.alarms([]answer{{status: status}})
		if got := e.Findings[0].Commands; !slices.Equal(got, append(slices.Clone(want), "etcdctl alarm disarm")) {
			t.Errorf("at revision %d: %q", rev, got)
		}
		e.Findings = nil
		e.space("a", status)
		e.space("b", status)
		if got := e.Findings; !slices.Equal(got[0].Commands, want) || got[1].Commands != nil {
			t.Errorf("at revision %d: %+v", rev, got)
		}
	}
}

// A compaction that etcd would refuse is not printed again: a full etcd stays at its revision.
func TestCompactedOnce(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t, testetcd.Quota(4<<20))
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(server.Client), etcdclaims.Config{Owner: "a"})
	etcd := claims.Etcd()
	for err := error(nil); err == nil; {
		_, err = etcd.Put(t.Context(), "/filler", strings.Repeat("x", 1<<20))
	}
	commands := func() []string {
		e := &Examination{
			Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second, Commands: Commands{Etcdctl: "etcdctl"},
		}
		e.Examine(t.Context(), false)
		e.has(t, Error, "alarms", "NOSPACE")
		return e.Findings[slices.IndexFunc(e.Findings, func(f Finding) bool { return f.Check == "alarms" })].Commands
	}
	first := commands()
	var rev int64
	if _, err := fmt.Sscanf(first[0], "etcdctl compaction --physical --command-timeout 10m %d", &rev); err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	if _, err := etcd.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if again := commands(); !slices.Equal(again, first[1:]) {
		t.Errorf("%q, want those of %q but the first", again, first)
	}
}
