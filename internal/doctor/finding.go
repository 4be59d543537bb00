package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// The checks that other findings follow from. The errors of CheckRevision are rewinds: etcd was
// restored from a snapshot, and its revision went back.
const (
	CheckRevision = "revision"
	checkQuorum   = "quorum"
	checkAuth     = "auth"
	checkAnswers  = "answers"
)

// effects is which findings can follow from a warning or an error of a check: those of other
// checks, and those with a trouble. A check with objects, such as "endpoint", stands for all of
// them. The first row that applies counts, so that causes stand before what follows from them.
var effects = []struct {
	cause   string
	warning bool // it is a cause also as a warning, and not only as an error
	checks  []string
	trouble trouble
}{
	{cause: checkQuorum, checks: []string{"endpoint", "members"}, trouble: unanswered},
	{cause: checkAuth, trouble: anonymous},
	{cause: "cluster", checks: []string{CheckRevision, "epoch"}},
	// A restore brings back claims and places of programs that have ended, and records, items
	// and jobs as they were.
	{cause: CheckRevision, checks: []string{"claims", "lines", "sessions", "work", "queues", "jobs"}},
	{cause: "alarms", checks: []string{"space"}, trouble: full},
	{cause: "space", warning: true, trouble: full},
	{cause: "endpoint", trouble: unanswered},
	{cause: checkAnswers, trouble: unanswered},
	{cause: "permissions", warning: true, trouble: denied},
	{cause: "clocks", warning: true, trouble: mistimed},
	{cause: "latency", checks: []string{"sessions"}},
}

// kindOf returns a check without its object.
func kindOf(check string) string {
	kind, _, _ := strings.Cut(check, " ")
	return kind
}

// run adds commands of the remedy.
func (f *Finding) run(commands ...string) { f.Commands = append(f.Commands, commands...) }

func (f Finding) bad() bool { return f.Level == Warning || f.Level == Error }

// fold names in each finding the cause that it can follow from, and puts it behind that cause.
// Causes come first.
func fold(all []Finding) []Finding {
	all = nameFillers(gatherUnanswered(withoutDenied(all)))
	followers := map[int][]int{} // of the causes
	for _, of := range effects {
		cause := slices.IndexFunc(all, func(f Finding) bool {
			return (f.Level == Error || of.warning && f.Level == Warning) && f.After == "" && kindOf(f.Check) == of.cause
		})
		if cause < 0 {
			continue
		}
		for i, f := range all {
			follows := of.trouble != untroubled && f.trouble == of.trouble || slices.Contains(of.checks, kindOf(f.Check))
			if i != cause && f.After == "" && follows && f.Level != OK && kindOf(f.Check) != of.cause {
				all[i].After = all[cause].Check
				followers[cause] = append(followers[cause], i)
			}
		}
	}
	var causes, alone []Finding
	for i, f := range all {
		if f.After != "" {
			continue
		}
		behind := followers[i]
		if len(behind) == 0 {
			alone = append(alone, f)
			continue
		}
		causes = append(causes, f)
		for _, i := range behind {
			causes = append(causes, all[i])
		}
	}
	return append(causes, alone...)
}

// withoutDenied drops what was not examined for want of permission if the permissions were
// examined: that check names what lacks.
func withoutDenied(all []Finding) []Finding {
	if !slices.ContainsFunc(all, func(f Finding) bool { return f.Check == "permissions" }) {
		return all
	}
	return slices.DeleteFunc(all, func(f Finding) bool { return f.trouble == denied && f.Level == Note })
}

// nameFillers adds to the first finding that etcd is full whose keys fill it.
func nameFillers(all []Finding) []Finding {
	fillers := slices.IndexFunc(all, func(f Finding) bool { return f.Check == "prefixes" && f.Level == OK })
	for _, kind := range []string{"alarms", "space"} {
		is := slices.IndexFunc(all, func(f Finding) bool { return kindOf(f.Check) == kind && f.trouble == full })
		if is >= 0 && fillers >= 0 {
			all[is].Detail += "; it has " + all[fillers].Detail
			break
		}
	}
	return all
}

// gatherUnanswered adds one finding as the cause of all checks that etcd did not answer, unless another
// finding is their cause already.
func gatherUnanswered(all []Finding) []Finding {
	var names []string
	for _, f := range all {
		switch kind := kindOf(f.Check); {
		case f.bad() && (kind == checkQuorum || kind == "endpoint"):
			return all
		case f.trouble == unanswered && !slices.Contains(names, f.Check):
			names = append(names, f.Check)
		}
	}
	if len(names) < 2 {
		return all
	}
	return append(all, Finding{
		Check: checkAnswers, Level: Error, Remedy: remedyUnanswered,
		Detail: "etcd did not answer in time: not examined: " + strings.Join(names, ", "),
	})
}

const remedyUnanswered = "look at the load and the disks of etcd, and at the network; with more time: --command-timeout 30s"

// Cause is a finding that stands alone, with those that can follow from it.
type Cause struct {
	Finding
	Folded []Finding
}

// Causes returns the causes of what Examine or Try has found.
func Causes(all []Finding) (causes []Cause) {
	for _, f := range all {
		if last := len(causes) - 1; f.After != "" && last >= 0 {
			causes[last].Folded = append(causes[last].Folded, f)
		} else {
			causes = append(causes, Cause{Finding: f})
		}
	}
	return causes
}

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Note    Level = "note" // worth a look, and normal in some systems
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is the result of one check.
type Finding struct {
	Check    string   `json:"check"`
	Level    Level    `json:"level"`
	Detail   string   `json:"detail"`
	Remedy   string   `json:"remedy,omitempty"`   // empty if the level is OK
	Commands []string `json:"commands,omitempty"` // of the remedy, in their order; each is one line
	// After names the check whose finding must be mended first, because it can be the cause
	// of this one. Empty means that the finding stands alone.
	After string `json:"after,omitempty"`

	trouble trouble
}

// trouble is why a check could not be made.
type trouble int

const (
	untroubled trouble = iota
	unanswered         // by etcd, or it has no leader
	anonymous          // etcd requires a user, and the client names none
	denied             // for want of permission
	full               // etcd is out of space
	mistimed           // a clock can be wrong
)

// troubleOf returns what an error shows.
func troubleOf(err error) trouble {
	switch {
	case err == nil:
		return untroubled
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return anonymous
	case explain.IsDenied(err):
		return denied
	case errors.Is(err, rpctypes.ErrNoSpace):
		return full
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, etcdclaims.ErrUnreachable),
		errors.Is(err, etcdclaims.ErrUnknown), txn.MayPass(err):
		return unanswered
	}
	return untroubled
}
