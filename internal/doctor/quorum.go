package doctor

import (
	"context"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
		e.Add(Error, checkQuorum, remedyUnanswered, "the members have a leader, but no request is answered: %v; nothing else was examined", unread)
	default:
		e.Add(Error, checkQuorum, "look at the logs of the members, and at the network between them",
			"the members have elected no leader: %s", effect)
	}
}
