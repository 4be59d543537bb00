package doctor

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims/work"
)

// work looks for records that somebody must look at.
func (e *Examination) work(ctx context.Context) {
	type kind struct {
		state work.State
		once  bool // at most once
	}
	found := map[kind][]string{}
	works, err := work.New(e.Claims, work.Config{})
	if err != nil {
		e.Add(Error, "work", "see the client", "cannot be listed: %v", err)
		return
	}
	of := source{"work", Error, "see the permissions", "cannot be listed", e.Limit}
	read, unread, ok := each(ctx, e, of, works.Records(ctx, ""), func(r work.Record) error {
		is := kind{r.State, r.AtMostOnce}
		found[is] = append(found[is], r.Key)
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
		kind
		is, remedy string
	}{
		{kind{work.StateOrphaned, false}, "orphaned, their owners died", fmt.Sprintf(
			"see that a process begins them again; %s work ls --state orphaned", e.Commands.Claimctl)},
		{kind{work.StateOrphaned, true}, "orphaned and at most once, which no caller begins again", e.onlyOnPurpose()},
		{kind{work.StateDead, false}, "dead, after their last attempt", fmt.Sprintf(
			"%[1]s work show KEY, mend the cause, %[1]s work retry KEY", e.Commands.Claimctl)},
		{kind{work.StateDead, true}, "dead and at most once", e.onlyOnPurpose()},
		{kind{work.StateUnreadable, false}, "unreadable", "a newer version or another program wrote them: do not delete them before you know"},
	} {
		if keys := found[sick.kind]; len(keys) > 0 {
			e.Add(Warning, "work", sick.remedy, "%d %s: %s", len(keys), sick.is, several(keys))
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
