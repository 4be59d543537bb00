package doctor

import (
	"slices"
	"testing"

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
