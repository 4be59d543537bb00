package main

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// raise raises the alarm NOSPACE of a member.
func (w *world) raise(member uint64) {
	w.Helper()
	_, err := pb.NewMaintenanceClient(w.etcd.ActiveConnection()).Alarm(w.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE})
	w.noErr(err)
}

// The alarm of a member that has left the cluster, which stops all writes, is shown and disarmed.
func TestAlarmOfGoneMember(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	w.raise(0x1234)
	if _, err := w.etcd.Put(t.Context(), "x", "y"); err == nil {
		t.Error("the alarm stops no writes")
	}
	w.finds(w.ok("space"), "member 1234", "NOSPACE")
	w.finds(w.ok("space", "reclaim", "--yes"), "disarmed NOSPACE of member 1234")
	_, err := w.etcd.Put(t.Context(), "x", "y")
	w.noErr(err)
}

// The alarm of a member that is not among the endpoints is disarmed if the member answers and has
// room. If it does not answer, space reclaim fails and names it.
func TestAlarmOfOtherMember(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	t.Parallel()
	cluster := testetcd.StartCluster(t, 3)
	w := &world{T: t, prefix: testetcd.Prefix(t), etcd: cluster.Member(0).Client(t)}
	patience := func(d string) {
		w.flags = []string{"--endpoints", strings.Join(cluster.Endpoints()[:2], ","), "--prefix", w.prefix, "--dial-timeout", d, "--command-timeout", "30s"}
	}
	patience("10s") // a busy machine may answer late
	status, err := w.etcd.Status(t.Context(), cluster.Endpoints()[2])
	w.noErr(err)
	w.raise(status.Header.MemberId)
	w.finds(w.ok("space"), "NOSPACE")
	w.finds(w.ok("space", "reclaim", "--yes"), "disarmed NOSPACE of member ")
	w.raise(status.Header.MemberId)
	cluster.Stop(t, 2)
	cluster.Leader(t) // an election may take longer than the patience
	patience("3s")    // a look at the stopped member takes that long
	w.fails(exitFailure, "name it in --endpoints", "space", "reclaim", "--yes", "--allow-missing")
}
