package doctor

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims/work"
)

// work looks for records that somebody must look at.
func (e *Examination) work(ctx context.Context) {
	var orphaned, once, dead, deadOnce, unreadable []string
	works, err := work.New(e.Claims, work.Config{})
	if err != nil {
		e.Add(Error, "work", "see the client", "cannot be listed: %v", err)
		return
	}
	of := source{"work", Error, "see the permissions", "cannot be listed", e.Limit}
	read, unread, ok := each(e, of, works.Records(ctx, ""), func(r work.Record) error {
		switch {
		case r.State == work.StateOrphaned && r.AtMostOnce:
			once = append(once, r.Key)
		case r.State == work.StateOrphaned:
			orphaned = append(orphaned, r.Key)
		case r.State == work.StateDead && r.AtMostOnce:
			deadOnce = append(deadOnce, r.Key)
		case r.State == work.StateDead:
			dead = append(dead, r.Key)
		case r.State == work.StateUnreadable:
			unreadable = append(unreadable, r.Key)
		}
		return nil
	})
	if !ok {
		return
	}
	more := ""
	if unread != "" {
		more = " or more"
	}
	before := len(e.Findings)
	for _, sick := range []struct {
		keys       []string
		is, remedy string
	}{
		{orphaned, "orphaned, their owners died", fmt.Sprintf("see that a process begins them again; %s work ls --state orphaned", e.Commands.Claimctl)},
		{once, "orphaned and at most once, which no caller begins again", e.onlyOnPurpose()},
		{dead, "dead, after their last attempt", fmt.Sprintf("%[1]s work show KEY, mend the cause, %[1]s work retry KEY", e.Commands.Claimctl)},
		{deadOnce, "dead and at most once", e.onlyOnPurpose()},
		{unreadable, "unreadable", "a newer version or another program wrote them: do not delete them before you know"},
	} {
		if len(sick.keys) > 0 {
			e.Add(Warning, "work", sick.remedy, "%d %s: %s", len(sick.keys), sick.is, several(sick.keys))
		}
	}
	if len(e.Findings) == before {
		e.Judge("work", unread, "%s%s, none of those read is orphaned or dead", count(read, "record", "records"), more)
	}
}

// onlyOnPurpose is what to do about work that is at most once and did not end well.
func (e *Examination) onlyOnPurpose() string {
	return fmt.Sprintf("%[1]s work show KEY, and find out whether the effect happened. If not: %[1]s work retry KEY; if so: %[1]s work forget KEY, or leave it", e.Commands.Claimctl)
}
