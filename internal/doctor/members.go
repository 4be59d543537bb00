package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const mib = 1 << 20

// Member is what one endpoint has answered.
type Member struct {
	Endpoint, Version, Err string
	Leader                 bool  // it is the leader
	Size, Quota            int64 // of its database, in MiB; the quota is 0 if etcd does not report it
}

// answer is what a member says of itself.
type answer struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
	took     time.Duration
	busy     bool              // there is a connection, on which it did not answer
	shown    *x509.Certificate // by the member; nil without TLS
}

// Ask asks only the members how they are, which takes no longer than Answer.
func (e *Examination) Ask(ctx context.Context) { e.endpoints(e.askAll(ctx)) }

// askAll asks the members how they are, all at once.
func (e *Examination) askAll(ctx context.Context) []answer {
	endpoints := e.etcd().Endpoints()
	answers := make([]answer, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() { answers[i] = e.ask(ctx, endpoint) })
	}
	wg.Wait()
	return answers
}

// came reports whether the member has answered at all.
func (a answer) came() bool {
	problem := troubleOf(a.err)
	return a.err == nil || problem == denied || problem == anonymous
}

// answered returns the answers of the members that have told their status.
func answered(answers []answer) []answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return a.err != nil })
}

// endpoints judges what each member has answered.
func (e *Examination) endpoints(answers []answer) {
	for _, a := range answers {
		check, m := "endpoint "+a.endpoint, Member{Endpoint: a.endpoint}
		switch {
		case troubleOf(a.err) == anonymous:
			e.well(check, "answers, and tells its status to users only")
		case explain.IsDenied(a.err):
			e.Add(Warning, check, "let the user of doctor have the role root to see it", "does not tell its status: %v", a.err)
		case a.busy:
			e.Add(Error, check, "wait for the end of a defragmentation, or look at the disk and the load of the member",
				"accepts connections, but does not answer: %v", a.err).run(e.memberctl(a.endpoint, "endpoint health"))
		case a.err != nil:
			e.Add(Error, check, "start the member, or mend the network or the certificates between it and this host",
				"does not answer: %v", a.err).run(e.memberctl(a.endpoint, "endpoint health"))
		case a.status.Leader == 0:
			e.Add(Error, check, "look at the log of the member, and at the network between the members", "has no leader")
		case e.Untimed:
			e.well(check, "etcd %s answers", a.status.Version)
		default:
			e.well(check, "etcd %s answers in %s", a.status.Version, a.took.Round(100*time.Microsecond))
		}
		if a.err != nil {
			m.Err = a.err.Error()
		} else {
			m.Version, m.Size, m.Quota = a.status.Version, a.status.DbSize/mib, max(a.status.DbSizeQuota/mib, 0)
			m.Leader = a.status.Leader == a.status.Header.MemberId
			e.progress(check, a.status)
			e.space(a.endpoint, a.status)
		}
		e.Members = append(e.Members, m)
	}
	e.versions(answers)
	e.clusters(answers)
	for _, a := range answers {
		e.certificate("of "+a.endpoint, a.shown, clock.Clock{}.Time())
	}
}

// memberctl returns a command of etcdctl for some endpoints.
func (e *Examination) memberctl(endpoints, command string) string {
	return e.Commands.Member + " --endpoints " + explain.Quoted(endpoints) + " " + command
}

// ask asks one member how it is. The member has a time of its own, since one that is down would
// take all there is. It does what clientv3's Status does, which drops why there is no connection.
func (e *Examination) ask(ctx context.Context, endpoint string) answer {
	begun := clock.Mono()
	ctx, cancel := context.WithTimeout(ctx, e.Answer)
	defer cancel()
	conn, err := e.etcd().Dial(endpoint)
	if err != nil {
		return answer{endpoint: endpoint, err: err}
	}
	defer func() { _ = conn.Close() }()
	var member peer.Peer
	a := answer{endpoint: endpoint}
	for a.status == nil || a.status.Leader == 0 { // it may be electing one
		status, err := clientv3.RetryMaintenanceClient(e.etcd(), conn).
			Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true), grpc.Peer(&member))
		switch {
		case err == nil:
			a.status = (*clientv3.StatusResponse)(status)
			a.took = cmp.Or(a.took, time.Since(begun))
		case a.status == nil:
			a.err, a.busy = txn.CallError(ctx, err), conn.GetState() == connectivity.Ready
			return a
		}
		if err != nil || a.status.Leader == 0 && !retry.Pause(ctx, 1) {
			break
		}
	}
	if info, ok := member.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		a.shown = info.State.PeerCertificates[0]
	}
	return a
}

// progress judges how far a member is behind its own log.
func (e *Examination) progress(check string, status *clientv3.StatusResponse) {
	const much = 1000 // etcd itself refuses requests at 5,000
	if behind := int64(status.RaftIndex) - int64(status.RaftAppliedIndex); behind > much {
		e.Add(Warning, check, "look at the load and the disk of the member", "is %d entries behind its own log", behind)
	}
	for _, fault := range status.Errors {
		if _, ok := alarmOf(fault); !ok { // see alarms
			e.Add(Error, check, "look at the log of the member", "%s", fault)
		}
	}
}

// nearlyFull is the share of the quota, in percent, above which a member needs room.
const nearlyFull = 80

// space judges the size of a member's database.
func (e *Examination) space(endpoint string, status *clientv3.StatusResponse) {
	quota := status.DbSizeQuota // etcd before 3.6 does not report it
	check, share, of := "space "+endpoint, int64(0), fmt.Sprintf("%d MiB, of a quota that etcd does not report", status.DbSize/mib)
	if quota > 0 {
		share = status.DbSize * 100 / quota
		of = fmt.Sprintf("%d%% of the quota of %d MiB", share, quota/mib)
	}
	switch {
	case share > nearlyFull:
		again := slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.trouble == full })
		f := e.Add(Warning, check, "compact and defragment, or raise --quota-backend-bytes: see \"etcd is out of space\" in docs/operations.md",
			"its database has %d MiB, %s: when it is full nothing more can be claimed; held claims are still renewed and released", status.DbSize/mib, of)
		if f.trouble = full; !again {
			f.run(e.makeRoom(status.Header.GetRevision())...)
		}
	case status.DbSize > 512*mib && status.DbSizeInUse < status.DbSize/2:
		e.Add(Warning, check, "defragment the member: it answers nothing meanwhile",
			"its database has %d MiB, of which %d MiB are in use", status.DbSize/mib, status.DbSizeInUse/mib,
		).run(e.memberctl(endpoint, "defrag"))
	default:
		e.well(check, "%s", of)
	}
}
