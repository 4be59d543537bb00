// Package doctor examines an etcd and the claims in it, and says what to do about each
// finding: for claimctl and for the page of etcdclaims/webui.
package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Examination examines what a client of claims sees. All fields but Findings and Members are
// set before.
type Examination struct {
	Claims   *etcdclaims.Client // with an etcd
	Commands Commands

	Limit    int           // how many claims, places in line and records are read at most
	Leases   int           // how many leases are asked for at most, for each check
	Patience time.Duration // how long all checks may take, which are made beside each other
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
	// Untimed omits from the findings how long an answer took.
	Untimed bool
	// Thorough adds what costs etcd more: a list of all leases, and counts of all keys.
	Thorough bool
	// Refused is why the client could not log in. Then Claims has no user, and only the
	// members are asked how they are.
	Refused error

	Findings []Finding // consequences stand behind their causes
	Members  []Member

	gone      map[clientv3.LeaseID]bool // leases that etcd does not have
	compacted int64                     // a revision that is known to be compacted
}

// Commands is how the commands of remedies begin: a program and the flags that name the
// etcd that is examined.
type Commands struct {
	Claimctl, Etcdctl string
	Member            string // etcdctl without --endpoints
	Root              string // etcdctl as root: without the certificate of this client
}

// Add adds a finding, and returns it until the next one is added.
func (e *Examination) Add(l Level, check, remedy, format string, args ...any) *Finding {
	e.Findings = append(e.Findings, Finding{Check: check, Level: l, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	return &e.Findings[len(e.Findings)-1]
}

// others describes what is unread beyond a limit, or for want of time.
const others = "the others were not read"

// unreadLeases describes leases that etcd was asked for in vain.
func unreadLeases(n int) string {
	if n == 0 {
		return ""
	}
	return errtext.Count(n, "lease", "leases") + " could not be read"
}

// judge adds a finding that all is well with what was read. It is a note if that was not all:
// unread describes the rest, and is empty if there is none.
func (e *Examination) judge(check, unread, format string, args ...any) {
	if unread == "" {
		e.well(check, format, args...)
		return
	}
	e.Add(Note, check, "raise --limit and --command-timeout, or see the load of etcd", "%s; %s", fmt.Sprintf(format, args...), unread)
}

// well adds a finding that all is well.
func (e *Examination) well(check, format string, args ...any) { e.Add(OK, check, "", format, args...) }

// failed adds a finding about what could not be read, and reports whether there is an error. If
// etcd refused for want of permission, the finding is a note.
func (e *Examination) failed(l Level, check, cannot string, err error) bool {
	if err == nil {
		return false
	}
	f := Finding{
		Check: check, Level: l, Detail: fmt.Sprintf("%s: %v", cannot, err), Remedy: "look at the log of etcd", trouble: troubleOf(err),
	}
	switch f.trouble {
	case unanswered:
		f.Remedy = remedyUnanswered
	case denied:
		f.Level, f.Remedy, f.Detail = Note, "grant the permission to read, or see the permissions", "not examined: permission denied"
	}
	e.Findings = append(e.Findings, f)
	return true
}

// source is what a check lists.
type source struct {
	check  string
	level  Level // of an error
	cannot string
	most   int // that are examined
}

// each examines the first entries of a list, those that cannot be read and those behind them
// included. It returns their number, and the text about the rest that judge takes. well is false
// if there are errors or findings: those of examine, and one for each error.
func each[T any](ctx context.Context, e *Examination, of source, list iter.Seq2[T, error],
	examine func(T) error,
) (n int, unread string, well bool) {
	before, failed := len(e.Findings), false
	for v, err := range list {
		if n == of.most || n > 0 && ctx.Err() != nil {
			unread = others
			break
		}
		if err == nil {
			err = examine(v)
		}
		if e.failed(of.level, of.check, of.cannot, err) {
			if failed = true; ctx.Err() != nil || explain.IsDenied(err) {
				break // it concerns those that follow as well
			}
		}
		n++
	}
	return n, unread, !failed && len(e.Findings) == before
}

// Login judges the kind of login, which took a while if that is known.
func (e *Examination) Login(password, certificate bool, took time.Duration) {
	switch {
	case password && took > 0:
		e.Add(Warning, checkAuth, useCertificates, "by password: a login took %s, and each costs etcd a bcrypt", took.Round(time.Millisecond))
	case password:
		e.Add(Warning, checkAuth, useCertificates, "by password: each login costs etcd a bcrypt")
	case certificate:
		e.well(checkAuth, "by client certificate")
	}
}

const useCertificates = "use client certificates with common names (docs/operations.md)"

// A check adds its findings to an examination of its own, beside the others.
type check func(*Examination, context.Context)

// part returns an examination of the same that has found nothing.
func (e *Examination) part() *Examination {
	p := *e
	p.Findings, p.gone = nil, nil
	return &p
}

// beside makes checks, a number of them at a time, and adds their findings in the order of the
// checks.
func (e *Examination) beside(ctx context.Context, atOnce int, checks []check) {
	ctx = clientv3.WithRequireLeader(ctx)
	parts, room := make([]*Examination, len(checks)), make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, examine := range checks {
		parts[i] = e.part()
		wg.Go(func() {
			room <- struct{}{}
			examine(parts[i], ctx)
			<-room
		})
	}
	wg.Wait()
	for _, p := range parts {
		e.Findings = append(e.Findings, p.Findings...)
	}
}

func (e *Examination) etcd() *clientv3.Client { return e.Claims.Etcd() }

// claimctl returns a command of claimctl to copy, with its last words.
func (e *Examination) claimctl(command string, words ...string) string {
	return e.Commands.Claimctl + " " + command + explain.Arguments(words...)
}

// etcdctl returns a command of etcdctl to copy, with its last words.
func (e *Examination) etcdctl(command string, words ...string) string {
	return e.Commands.Etcdctl + " " + command + explain.Arguments(words...)
}

// round keeps three digits of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// shown is how many of several keys are named.
const shown = 3

// several names a few keys and counts the others.
func several(keys []string) string {
	if len(keys) <= shown {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:shown], ", "), len(keys)-shown)
}
