package doctor

import (
	"fmt"

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
