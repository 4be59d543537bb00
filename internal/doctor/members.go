package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-semver/semver"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/serverfault"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
				"accepts connections, but does not answer: %v", a.err).Commands = e.memberctl(a.endpoint, "endpoint health")
		case a.err != nil:
			e.Add(Error, check, "start the member, or mend the network or the certificates between it and this host",
				"does not answer: %v", a.err).Commands = e.memberctl(a.endpoint, "endpoint health")
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
func (e *Examination) memberctl(endpoints, command string) []string {
	return []string{e.Commands.Member + " --endpoints " + explain.Quoted(endpoints) + " " + command}
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

// space judges the size of a member's database.
func (e *Examination) space(endpoint string, status *clientv3.StatusResponse) {
	quota := status.DbSizeQuota // etcd before 3.6 does not report it
	check, share, of := "space "+endpoint, int64(0), fmt.Sprintf("%d MiB, of a quota that etcd does not report", status.DbSize/mib)
	if quota > 0 {
		share = status.DbSize * 100 / quota
		of = fmt.Sprintf("%d%% of the quota of %d MiB", share, quota/mib)
	}
	switch {
	case share > 80:
		again := slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.trouble == full })
		f := e.Add(Warning, check, "compact and defragment, or raise --quota-backend-bytes: see \"etcd is out of space\" in docs/operations.md",
			"its database has %d MiB, %s: when it is full nothing more can be claimed; held claims are still renewed and released", status.DbSize/mib, of)
		if f.trouble = full; !again {
			f.Commands = e.makeRoom(status.Header.GetRevision())
		}
	case status.DbSize > 512*mib && status.DbSizeInUse < status.DbSize/2:
		e.Add(Warning, check, "defragment the member: it answers nothing meanwhile",
			"its database has %d MiB, of which %d MiB are in use", status.DbSize/mib, status.DbSizeInUse/mib,
		).Commands = e.memberctl(endpoint, "defrag")
	default:
		e.well(check, "%s", of)
	}
}

// members compares the list of members with the endpoints.
func (e *Examination) members(ctx context.Context) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	resp, err := e.etcd().MemberList(ctx)
	switch {
	case explain.IsDenied(err):
		return // it is for administrators
	case e.failed(Warning, "members", "cannot be listed", err):
		return
	}
	var missing []string
	voters := 0
	for _, m := range resp.Members {
		switch {
		case m.Name == "":
			f := e.Add(Warning, "members", "start it; if it is not to be, remove it from the cluster", "member %x has never started", m.ID)
			f.Commands = e.etcdctl(" member remove %x", m.ID)
		case m.IsLearner:
			f := e.Add(Warning, "members", "promote it, once it has caught up", "member %s is a learner", m.Name)
			f.Commands = e.etcdctl(" member promote %x", m.ID)
		}
		if !m.IsLearner {
			voters++
		}
		if len(m.ClientURLs) > 0 && !slices.ContainsFunc(m.ClientURLs, e.hasEndpoint) {
			missing = append(missing, m.Name+" ("+m.ClientURLs[0]+")")
		}
	}
	if voters%2 == 0 {
		e.Add(Warning, "members", "add or remove one: an even number tolerates no more failures than one less", "there are %d", voters)
	}
	if len(missing) > 0 && len(resp.Members) > 1 {
		e.Add(Warning, "members", "name every member in --endpoints and in the clients: a renewal then has a way around one that hangs",
			"not among the endpoints: %s", several(missing))
	}
	if voters%2 == 1 && (len(missing) == 0 || len(resp.Members) == 1) {
		e.well("members", "%d, of which %d may fail", voters, (voters-1)/2)
	}
}

// clusters reports endpoints of more than one cluster: a client spreads its requests over all.
func (e *Examination) clusters(answers []answer) {
	of := map[uint64][]string{}
	for _, a := range answered(answers) {
		of[a.status.Header.GetClusterId()] = append(of[a.status.Header.GetClusterId()], a.endpoint)
	}
	if len(of) < 2 {
		return
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%x (%s)", id, strings.Join(of[id], ", ")))
	}
	e.Add(Error, "cluster",
		"name the members of one cluster only, in --endpoints and in every client: a claim in one excludes nobody in another",
		"the endpoints belong to %d clusters: %s", len(of), strings.Join(parts, ", "))
}

func (e *Examination) hasEndpoint(member string) bool {
	return slices.ContainsFunc(e.etcd().Endpoints(), func(e string) bool { return hostOf(e) == hostOf(member) })
}

// hostOf is the host and the port of an endpoint.
func hostOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}

// versions judges the version of each member: against the newest of them, and against the
// faults that are known.
func (e *Examination) versions(answers []answer) {
	answers = answered(answers)
	var newest answer
	for _, a := range answers {
		if newest.status == nil || older(newest.status.Version, a.status.Version) {
			newest = a
		}
	}
	for _, a := range answers {
		version := a.status.Version
		var is, remedies []string
		if older(version, newest.status.Version) {
			is = append(is, "older than etcd "+newest.status.Version+" of "+newest.endpoint)
			remedies = append(remedies, "finish the upgrade")
		}
		if fault, fixedIn, err := serverfault.Of(version); err == nil && fault != "" {
			is = append(is, "it has a fault: "+fault)
			remedies = append(remedies, "upgrade etcd to "+fixedIn)
		}
		switch {
		case len(is) > 0:
			e.Add(Warning, "versions", strings.Join(remedies, "; "), "%s runs etcd %s, %s", a.endpoint, version, strings.Join(is, "; "))
		case len(answers) > 1:
			e.well("versions", "%s runs etcd %s, the newest of the members, without known faults", a.endpoint, version)
		default:
			e.well("versions", "%s runs etcd %s, without known faults", a.endpoint, version)
		}
	}
}

// older reports whether one version is older than another. A version that cannot be parsed is not
// compared.
func older(version, than string) bool {
	a, err := semver.NewVersion(version)
	b, err2 := semver.NewVersion(than)
	return err == nil && err2 == nil && a.LessThan(*b)
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
			f.Commands, told = append(e.makeRoom(newest(answers)), e.etcdctl(" alarm disarm")...), true
		}
	}
}

// makeRoom returns the commands after which etcd has space again, unless live data fills it. A revision
// of 0 is not known. etcd refuses to compact one that is compacted, as after a first try to make room: then only the
// defragmentation is left.
func (e *Examination) makeRoom(rev int64) []string {
	if rev == 0 {
		return nil
	}
	defrag := e.etcdctl(" defrag --cluster --command-timeout 10m")
	if rev <= e.compacted {
		return defrag
	}
	// Without --physical the keys may be there still when the defragmentation begins.
	return append(e.etcdctl(" compaction --physical --command-timeout 10m %d", rev), defrag...)
}

// readCompacted learns whether the newest revision of the members is compacted. One that can still be read is not.
func (e *Examination) readCompacted(ctx context.Context, answers []answer) {
	rev := newest(answers)
	if rev < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Answer)
	defer cancel()
	_, err := e.etcd().Get(ctx, e.Claims.Prefix()+"epoch", clientv3.WithRev(rev-1), clientv3.WithSerializable(), clientv3.WithCountOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		e.compacted = rev
	}
}

// newest returns the newest revision of the members, 0 if it is not known.
func newest(answers []answer) (rev int64) {
	for _, a := range answered(answers) {
		rev = max(rev, a.status.Header.GetRevision())
	}
	return rev
}

// quorum judges why etcd did not answer a read that a majority confirms. The list of members is
// that of the member asked, so it can be read without a majority.
func (e *Examination) quorum(ctx context.Context, unread error, answers []answer) {
	ctx, cancel := context.WithTimeout(ctx, e.Answer/4)
	defer cancel()
	var voters []*pb.Member
	if slices.ContainsFunc(answers, answer.came) {
		if resp, err := e.etcd().MemberList(ctx, clientv3.WithSerializable()); err == nil {
			voters = slices.DeleteFunc(resp.Members, func(m *pb.Member) bool { return m.IsLearner })
		}
	}
	e.judgeQuorum(unread, answers, voters)
}

// judgeQuorum is the judgement of quorum. No voters means that they are not known.
func (e *Examination) judgeQuorum(unread error, answers []answer, voters []*pb.Member) {
	var silent []string
	for _, a := range answers {
		if !a.came() {
			silent = append(silent, a.endpoint)
		}
	}
	all := max(len(answers), len(voters))
	missing := all - (len(answers) - len(silent)) // those that are no endpoints may be well
	led := slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil && a.status.Leader != 0 })
	const effect = "nothing can be claimed, renewed or released; nothing else was examined"
	switch {
	case len(answers) == 1 && len(silent) == 1: // its own finding says so
	case len(silent) == len(answers):
		e.Add(Error, checkQuorum, "start the members, or mend the network or the certificates between them and this host",
			"none of the %d endpoints answers: %s", len(answers), effect).Commands = e.memberctl(strings.Join(silent, ","), "endpoint health")
	case 2*missing >= all:
		f := e.Add(Error, checkQuorum, "start a majority of the members, or mend the network between them",
			"%d of %d members do not answer, so that etcd has no leader: %s", missing, all, effect)
		if len(silent) > 0 {
			f.Commands = e.memberctl(strings.Join(silent, ","), "endpoint health")
		}
	case led:
		e.Add(Error, checkQuorum, remedyUnanswered,
			"the members have a leader, but no request is answered: %v; nothing else was examined", unread)
	default:
		e.Add(Error, checkQuorum, "look at the logs of the members, and at the network between them",
			"the members have elected no leader: %s", effect)
	}
}
