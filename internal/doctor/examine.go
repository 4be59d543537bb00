package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The checks, in the order of their findings. Only those of trial write.
var (
	survey = []check{
		(*Examination).claims, (*Examination).flapping, (*Examination).sessions, (*Examination).clocks,
		(*Examination).work, (*Examination).queues, (*Examination).groups, (*Examination).partitionGroups,
	}
	thorough = []check{(*Examination).counts, (*Examination).leases, (*Examination).prefixes}
	trial    = []check{(*Examination).permissions, (*Examination).claimOne, (*Examination).latency}
)

// election is how much longer than a member the first read may take: etcd may be electing a leader.
const election = 1500 * time.Millisecond

// Examine makes all checks. It only reads, unless writes is set. If etcd has no leader, or
// requires a user, only the members are asked: all other checks would find the same.
func (e *Examination) Examine(ctx context.Context, writes bool) {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	e.Answer = min(e.Answer, e.Patience/2)
	first, end := context.WithTimeout(ctx, min(e.Answer+election, e.Patience*2/3))
	defer end()
	asked, compacted := make(chan []answer, 1), int64(0)
	go func() {
		answers := e.askAll(ctx)
		if !slices.ContainsFunc(answers, answer.came) {
			end() // nobody is there to answer the first read
		}
		compacted = e.readCompacted(ctx, answers)
		asked <- answers
	}()
	body, err := e.part(), e.Refused
	if err == nil {
		err = body.epoch(first)
	}
	if problem := troubleOf(err); problem != unanswered && problem != anonymous && e.Refused == nil {
		checks := append([]check{(*Examination).members}, survey...)
		if e.Thorough {
			checks = append(checks, thorough...)
		}
		if writes {
			checks = append(checks, trial...)
		}
		body.beside(ctx, len(checks), checks)
	}
	answers := <-asked
	e.compacted = compacted
	e.ownCertificates()
	e.endpoints(answers)
	e.alarms(answers)
	e.unadmitted(ctx, err, answers)
	e.Findings = fold(append(e.Findings, body.Findings...))
}

// Try makes the checks that write. They write one key, which is deleted, or none if no
// feature in use claims keys.
func (e *Examination) Try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	e.beside(ctx, len(trial), trial)
	e.Findings = fold(e.Findings)
}

// unadmitted judges why etcd did not answer the first read.
func (e *Examination) unadmitted(ctx context.Context, err error, answers []answer) {
	switch problem := troubleOf(err); {
	case problem == unanswered:
		e.quorum(ctx, err, answers)
	case problem == anonymous:
		e.Add(Error, checkAuth, "name one: --cert and --key with its certificate, or --user (docs/operations.md, Certificates)",
			"etcd requires a user, and this client names none: nothing else was examined")
	}
	if e.Refused != nil {
		f := e.Add(Error, checkAuth, "check --user and its password", "cannot log in: %v", e.Refused)
		f.trouble = troubleOf(e.Refused)
	}
}

// Epoch reads the epoch of the claims, and compares Fence with it and with etcd's revision. In
// one epoch revisions only rise.
func (e *Examination) Epoch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), e.Patience)
	defer cancel()
	_ = e.epoch(ctx)
}

// epoch is Epoch until ctx ends. An error that shows why nothing can be read is no finding.
func (e *Examination) epoch(ctx context.Context) error {
	var epoch int64
	at, err := retry.Within(ctx, e.Patience, func(ctx context.Context) (at *pb.ResponseHeader, err error) {
		ctx, cancel := context.WithTimeout(ctx, e.Patience/4) // the next try is sent to another member
		defer cancel()
		epoch, at, err = explain.Epoch(ctx, e.etcd(), e.Claims.Prefix())
		return at, err
	})
	switch problem := troubleOf(err); {
	case problem == unanswered || problem == anonymous:
		return err
	case err != nil:
		e.Add(Error, "epoch", "correct the key, or grant its permission", "%v", err).trouble = problem
		return err
	}
	e.well("epoch", "%d", epoch)
	switch seen, of := keyspace.Revision(e.Fence), keyspace.Epoch(e.Fence); {
	case e.Fence == 0:
	case epoch > of || epoch == of && at.Revision >= seen:
		e.well(CheckRevision, "%d, not behind --fence", at.Revision)
	default:
		e.Add(Error, CheckRevision, "etcd was restored without --bump-revision, so that fences repeat: "+
			"stop the programs that write under fences, and then raise the epoch",
			"fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", e.Fence, seen, of, at.Revision, epoch,
		).run(e.claimctl(fmt.Sprintf("epoch raise --above %d --yes", of)))
	}
	return nil
}
