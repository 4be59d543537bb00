package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explain"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// alarms judges the alarms that are raised. Each member knows those of all and has them in
// its status, which it answers from memory. etcd answers a request for alarms by an entry in
// its log, so it is sent only if no status could be read.
func (e *Examination) alarms(ctx context.Context, answers []answer) {
	var raised []alarm
	answers = answered(answers)
	for _, a := range answers {
		for _, fault := range a.status.Errors {
			if found, ok := alarmOf(fault); ok && !slices.Contains(raised, found) {
				raised = append(raised, found)
			}
		}
	}
	if len(answers) == 0 {
		ctx, cancel := e.bounded(ctx)
		defer cancel()
		resp, err := e.etcd().AlarmList(ctx)
		switch {
		case explain.IsDenied(err):
			return // the claim below shows what matters
		case err != nil:
			e.Add(Error, "alarms", "see the endpoints", "cannot be read: %v", err)
			return
		}
		for _, a := range resp.Alarms {
			raised = append(raised, alarm{a.MemberID, a.Alarm.String()})
		}
	}
	if len(raised) == 0 {
		e.Well("alarms", "none")
	}
	for _, a := range raised {
		e.Add(Error, "alarms", e.remedyOf(a.kind), "member %x has the alarm %s", a.member, a.kind)
	}
}

func (e *Examination) remedyOf(kind string) string {
	switch kind {
	case pb.AlarmType_NOSPACE.String():
		return fmt.Sprintf("compact and defragment as \"etcd is out of space\" in docs/operations.md says, "+
			"then: %s alarm disarm", e.Commands.Etcdctl)
	case pb.AlarmType_CORRUPT.String():
		return "take the member out of the cluster and let it join again without data"
	}
	return "see etcd's documentation of the alarm"
}
