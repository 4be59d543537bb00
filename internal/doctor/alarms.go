package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// alarm is one that a member has raised.
type alarm struct {
	member uint64
	kind   string
}

// alarmOf parses an error of a member's status. It returns false if the error is not an alarm.
func alarmOf(fault string) (a alarm, ok bool) {
	_, err := fmt.Sscanf(fault, "memberID:%d alarm:%s", &a.member, &a.kind)
	return a, err == nil
}

// remedy returns what ends the alarm.
func (a alarm) remedy() string {
	switch a.kind {
	case pb.AlarmType_NOSPACE.String():
		return "compact and defragment as \"etcd is out of space\" in docs/operations.md says, then disarm the alarm"
	case pb.AlarmType_CORRUPT.String():
		return "take the member out of the cluster and let it join again without data"
	}
	return "see etcd's documentation of the alarm"
}

// alarms judges the alarms that are raised. Each member knows those of all and has them in its status.
// A user who may not see it cannot end an alarm: write shows what matters.
func (e *Examination) alarms(answers []answer) {
	answers = answered(answers)
	if len(answers) == 0 {
		return
	}
	var raised []alarm
	for _, a := range answers {
		for _, fault := range a.status.Errors {
			if found, ok := alarmOf(fault); ok && !slices.Contains(raised, found) {
				raised = append(raised, found)
			}
		}
	}
	if len(raised) == 0 {
		e.well("alarms", "none")
	}
	told := false
	for _, a := range raised {
		f := e.Add(Error, "alarms", a.remedy(), "member %x has the alarm %s", a.member, a.kind)
		if a.kind != pb.AlarmType_NOSPACE.String() {
			continue
		}
		if f.trouble = full; !told {
			f.run(append(e.makeRoom(newest(answers)), e.etcdctl("alarm disarm"))...)
			told = true
		}
	}
}

// makeRoom returns the commands after which etcd has space again, unless live data fills it. A revision
// of 0 is not known. etcd refuses a second compaction of a revision: then the defragmentation suffices.
func (e *Examination) makeRoom(rev int64) []string {
	if rev == 0 {
		return nil
	}
	defrag := e.etcdctl("defrag --cluster --command-timeout 10m")
	if rev <= e.compacted {
		return []string{defrag}
	}
	// Without --physical the keys may be there still when the defragmentation begins.
	return []string{e.etcdctl(fmt.Sprintf("compaction --physical --command-timeout 10m %d", rev)), defrag}
}

// needsRoom reports whether a member is nearly full, or has raised the alarm for that.
func needsRoom(a answer) bool {
	raised := slices.ContainsFunc(a.status.Errors, func(fault string) bool {
		found, ok := alarmOf(fault)
		return ok && found.kind == pb.AlarmType_NOSPACE.String()
	})
	return raised || a.status.DbSizeQuota > 0 && a.status.DbSize*100/a.status.DbSizeQuota > nearlyFull
}

// readCompacted returns the newest revision of the members if it is compacted, and otherwise 0. A revision before it
// that can be read shows that it is not. etcd is asked only if a member needs room.
func (e *Examination) readCompacted(ctx context.Context, answers []answer) int64 {
	rev := newest(answers)
	if rev < 2 || !slices.ContainsFunc(answered(answers), needsRoom) {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, e.Answer)
	defer cancel()
	_, err := e.etcd().Get(ctx, e.Claims.Prefix()+"epoch",
		clientv3.WithRev(rev-1), clientv3.WithSerializable(), clientv3.WithCountOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return rev
	}
	return 0
}

// newest returns the newest revision of the members, 0 if it is not known.
func newest(answers []answer) (rev int64) {
	for _, a := range answered(answers) {
		rev = max(rev, a.status.Header.GetRevision())
	}
	return rev
}
