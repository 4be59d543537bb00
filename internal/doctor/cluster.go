package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-semver/semver"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/serverfault"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// members compares the list of members with the endpoints.
func (e *Examination) members(ctx context.Context) {
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
			e.Add(Warning, "members", "start it; if it is not to be, remove it from the cluster", "member %x has never started", m.ID).
				run(e.etcdctl(fmt.Sprintf("member remove %x", m.ID)))
		case m.IsLearner:
			e.Add(Warning, "members", "promote it, once it has caught up", "member %s is a learner", m.Name).
				run(e.etcdctl(fmt.Sprintf("member promote %x", m.ID)))
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
			"none of the %d endpoints answers: %s", len(answers), effect).run(e.memberctl(strings.Join(silent, ","), "endpoint health"))
	case 2*missing >= all:
		f := e.Add(Error, checkQuorum, "start a majority of the members, or mend the network between them",
			"%d of %d members do not answer, so that etcd has no leader: %s", missing, all, effect)
		if len(silent) > 0 {
			f.run(e.memberctl(strings.Join(silent, ","), "endpoint health"))
		}
	case led:
		e.Add(Error, checkQuorum, remedyUnanswered,
			"the members have a leader, but no request is answered: %v; nothing else was examined", unread)
	default:
		e.Add(Error, checkQuorum, "look at the logs of the members, and at the network between them",
			"the members have elected no leader: %s", effect)
	}
}
