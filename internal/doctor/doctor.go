// Package doctor examines an etcd and the claims in it, and says what to do about each
// finding: for claimctl and for the page of etcdclaims/webui.
package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // empty if the level is OK
	// After names the check whose finding must be mended first, because it can be the cause
	// of this one. Empty means that the finding stands alone.
	After string `json:"after,omitempty"`
}

// Examination examines what a client of claims sees. Cluster and Survey only read. Try
// writes. All fields but Findings and Members are set before.
type Examination struct {
	Claims   *etcdclaims.Client // with an etcd
	Commands Commands

	Limit    int           // how many claims, places in line and records are read at most
	Leases   int           // how many leases are asked for at most, for each check
	Patience time.Duration // how long one check may take
	Answer   time.Duration // how long one member may take to answer, with the connection

	// TLS is how the client connects. Its certificates are judged.
	TLS *tls.Config
	// TTL is the lease time of claims that the latency is judged by. Zero means the
	// shortest one of the sessions that there are.
	TTL time.Duration
	// Fence is a fence that was seen elsewhere, such as in a database. It is an error if etcd is
	// behind it. Zero means that none is known.
	Fence int64
	// Features are the features in use: a permission that one of them lacks is an error.
	// Empty means all features; then only those of acquiring are errors, others warnings.
	Features []string
	// ICal parses the iCalendar texts of jobs, as sched.Config.ICal does. Nil means that it
	// is not known when jobs with such texts are due.
	ICal func(text, zone string) (calendar.Calendar, error)
	// Untimed omits from the findings of Cluster how long an answer took.
	Untimed bool

	Findings []Finding
	Members  []Member // found by Cluster

	gone map[clientv3.LeaseID]bool // leases that etcd does not have
}

// Commands is how the commands of remedies begin: a program and the flags that name the
// etcd that is examined.
type Commands struct {
	Claimctl, Etcdctl string
	Member            string // etcdctl without --endpoints
}

// Add adds a finding.
func (e *Examination) Add(l Level, check, remedy, format string, args ...any) {
	e.Findings = append(e.Findings, Finding{Check: check, Level: l, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

// others is what is unread beyond a limit.
const others = "the others were not read"

// unreadLeases describes leases that etcd was asked for in vain.
func unreadLeases(n int) string {
	if n == 0 {
		return ""
	}
	return count(n, "lease", "leases") + " could not be read"
}

// Judge adds a finding that all is well with what was read. It is a note if that was not all:
// unread describes the rest, and is empty if there is none.
func (e *Examination) Judge(check, unread, format string, args ...any) {
	if unread == "" {
		e.Well(check, format, args...)
		return
	}
	e.Add(Note, check, "raise --limit, or see the load of etcd", "%s; %s", fmt.Sprintf(format, args...), unread)
}

// failed adds a finding about what could not be read, and reports whether there is an error. If
// etcd refused for want of permission, the finding is a note, and absent if the permissions were
// examined: see Try.
func (e *Examination) failed(l Level, check, remedy, cannot string, err error) bool {
	switch {
	case err == nil:
		return false
	case !explain.IsDenied(err):
		e.Add(l, check, remedy, "%s: %v", cannot, err)
	case !slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Check == "permissions" }):
		e.Add(Note, check, "grant the permission to read, or see the permissions", "not examined: permission denied")
	}
	return true
}

// source is what a check lists.
type source struct {
	check          string
	level          Level // of an error
	remedy, cannot string
	most           int // that are examined
}

// each examines the first entries of a list, those that cannot be read and those behind them
// included. It returns their number, and the text about the rest that Judge takes. well is false
// if there are errors or findings: those of examine, and one for each error.
func each[T any](ctx context.Context, e *Examination, of source, list iter.Seq2[T, error],
	examine func(T) error,
) (n int, unread string, well bool) {
	before, failed := len(e.Findings), false
	for v, err := range list {
		if n == of.most {
			unread = others
			break
		}
		if err == nil {
			err = examine(v)
		}
		if e.failed(of.level, of.check, of.remedy, of.cannot, err) {
			if failed = true; ctx.Err() != nil || explain.IsDenied(err) {
				break // it concerns those that follow as well
			}
		}
		n++
	}
	return n, unread, !failed && len(e.Findings) == before
}

// Well adds a finding that all is well.
func (e *Examination) Well(check, format string, args ...any) { e.Add(OK, check, "", format, args...) }

// Cluster examines the members of etcd. It returns false if no member answers, because then
// all other checks would find the same.
func (e *Examination) Cluster(ctx context.Context) bool {
	e.ownCertificates()
	answers := e.askAll(ctx)
	if !e.endpoints(answers) {
		return false
	}
	e.members(ctx)
	e.alarms(ctx, answers)
	return true
}

// Login judges the kind of login, which took a while if that is known.
func (e *Examination) Login(password, certificate bool, took time.Duration) {
	switch {
	case password && took > 0:
		e.Add(Warning, "auth", useCertificates, "by password: a login took %s, and each costs etcd a bcrypt", took.Round(time.Millisecond))
	case password:
		e.Add(Warning, "auth", useCertificates, "by password: each login costs etcd a bcrypt")
	case certificate:
		e.Well("auth", "by client certificate")
	}
}

const useCertificates = "use client certificates with common names (docs/operations.md)"

// Survey looks for abandoned claims, places in line, sessions, work, queues, jobs
// and groups. If the deadline of ctx passes, one warning names the checks that were not made.
func (e *Examination) Survey(ctx context.Context) {
	names := []string{"claims", "sessions", "work", "queues", "jobs", "groups"}
	for i, check := range []func(context.Context){e.claims, e.sessions, e.work, e.queues, e.groups, e.partitionGroups} {
		if ctx.Err() != nil {
			e.Add(Warning, "survey", "look at the load of etcd and at the network", "etcd was too slow: not examined: %s", strings.Join(names[i:], ", "))
			return
		}
		bounded, cancel := context.WithTimeout(ctx, e.Patience)
		check(bounded)
		cancel()
	}
}

func (e *Examination) etcd() *clientv3.Client { return e.Claims.Etcd() }

// bounded is the time that one check may take.
func (e *Examination) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), e.Patience)
}

// CheckRevision is the check whose errors are rewinds: etcd was restored from a snapshot, and
// its revision went back.
const CheckRevision = "revision"

// Epoch reads the epoch of the claims, and compares Fence with it and with etcd's revision. In
// one epoch revisions only rise.
func (e *Examination) Epoch(ctx context.Context) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	epoch, at, err := explain.Epoch(ctx, e.etcd(), e.Claims.Prefix())
	if err != nil {
		e.Add(Error, "epoch", "correct the key, or grant its permission", "%v", err)
		return
	}
	e.Well("epoch", "%d", epoch)
	switch seen, of := keyspace.Revision(e.Fence), keyspace.Epoch(e.Fence); {
	case e.Fence == 0:
	case epoch > of || epoch == of && at.Revision >= seen:
		e.Well(CheckRevision, "%d, not behind --fence", at.Revision)
	default:
		remedy := fmt.Sprintf("etcd was restored without --bump-revision, so that fences repeat: "+
			"stop the programs that write under fences, then: %s epoch raise --above %d --yes", e.Commands.Claimctl, of)
		e.Add(Error, CheckRevision, remedy,
			"fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", e.Fence, seen, of, at.Revision, epoch)
	}
}

// restored are the checks of what a restore brings back: claims and places of programs
// that have ended, and records, items and jobs as they were.
var restored = []string{"claims", "lines", "sessions", "work", "queues", "jobs"}

// OrderByCause puts a rewind first, and marks the findings that can follow from it.
func (e *Examination) OrderByCause() {
	rewind := slices.IndexFunc(e.Findings, func(f Finding) bool { return f.Check == CheckRevision && f.Level == Error })
	if rewind < 0 {
		return
	}
	for i, f := range e.Findings {
		if f.Level != OK && slices.Contains(restored, f.Check) {
			e.Findings[i].After = CheckRevision
		}
	}
	first := e.Findings[rewind]
	e.Findings = slices.Insert(slices.Delete(e.Findings, rewind, rewind+1), 0, first)
}

// round keeps three digits of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// several names a few keys and counts the others.
func several(keys []string) string {
	const shown = 3
	if len(keys) <= shown {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:shown], ", "), len(keys)-shown)
}
