package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// outline is the checks of findings, with the cause of each that follows from another.
func outline(all []Finding) (lines []string) {
	for _, f := range all {
		lines = append(lines, strings.TrimSpace(f.Check+" < "+f.After))
	}
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, " <")
	}
	return lines
}

// Causes come first, each with what can follow from it.
func TestFold(t *testing.T) {
	t.Parallel()
	of := func(l Level, check string, why trouble) Finding {
		return Finding{Check: check, Level: l, Detail: check + " of a test", trouble: why}
	}
	for name, tt := range map[string]struct {
		found []Finding
		want  []string
	}{
		"nothing wrong": {
			[]Finding{of(OK, "endpoint a", 0), of(OK, "claims", 0)},
			[]string{"endpoint a", "claims"},
		},
		"no leader": {
			[]Finding{of(OK, "endpoint a", 0), of(Error, "endpoint b", unanswered), of(Error, "endpoint c", unanswered), of(Error, "quorum", 0), of(Error, "auth", unanswered)},
			[]string{"quorum", "endpoint b < quorum", "endpoint c < quorum", "auth < quorum", "endpoint a"},
		},
		"a member hangs": {
			[]Finding{of(OK, "claims", 0), of(Error, "endpoint b", unanswered), of(Error, "endpoint c", unanswered), of(Error, "work", unanswered)},
			[]string{"endpoint b", "work < endpoint b", "claims", "endpoint c"},
		},
		"nothing answers in time, and nothing shows why": {
			[]Finding{of(Error, "work", unanswered), of(Warning, "queues", unanswered), of(Warning, "queues", unanswered), of(OK, "epoch", 0)},
			[]string{"answers", "work < answers", "queues < answers", "queues < answers", "epoch"},
		},
		"one check is slow": {
			[]Finding{of(Error, "work", unanswered), of(OK, "epoch", 0)},
			[]string{"work", "epoch"},
		},
		"a rewind": {
			[]Finding{of(Error, "alarms", 0), of(OK, "claims", 0), of(Warning, "claims", 0), of(Error, "revision", 0), of(Warning, "work", 0)},
			[]string{"revision", "claims < revision", "work < revision", "alarms", "claims"},
		},
		"out of space": {
			[]Finding{
				of(Warning, "space a", 0), of(Error, "alarms", full), of(OK, "prefixes", 0), of(Error, "write", full), of(Error, "renewal", 0),
			},
			[]string{"alarms", "space a < alarms", "write < alarms", "prefixes", "renewal"},
		},
		"nearly out of space": {
			[]Finding{of(OK, "space b", 0), of(Warning, "space a", full), of(OK, "prefixes", 0)},
			[]string{"space b", "space a", "prefixes"},
		},
		"space enough": {
			[]Finding{of(OK, "space a", 0), of(OK, "prefixes", 0)},
			[]string{"space a", "prefixes"},
		},
		"permissions lack": {
			[]Finding{of(Note, "work", denied), of(Error, "permissions", 0), of(Error, "permissions", 0), of(Error, "write", denied)},
			[]string{"permissions", "write < permissions", "permissions"},
		},
		"permissions were not examined": {
			[]Finding{of(Note, "work", denied)},
			[]string{"work"},
		},
		"a clock is wrong": {
			[]Finding{of(Warning, "jobs", mistimed), of(Note, "jobs", 0), of(Warning, "clocks", 0)},
			[]string{"clocks", "jobs < clocks", "jobs"},
		},
		"a login by password is no cause": {
			[]Finding{of(Warning, "auth", 0), of(Error, "renewal", anonymous)},
			[]string{"auth", "renewal"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := fold(tt.found)
			if got := outline(all); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			alone := 0
			for _, c := range Causes(all) {
				for _, f := range c.Folded {
					if f.After != c.Check {
						t.Errorf("%+v is folded under %s", f, c.Check)
					}
				}
				alone += 1 + len(c.Folded)
			}
			if alone != len(all) {
				t.Errorf("%d of %d findings", alone, len(all))
			}
		})
	}
}

// Whose keys fill etcd is said where etcd is said to be full.
func TestFillers(t *testing.T) {
	t.Parallel()
	found := []Finding{
		{Check: "space a", Level: Warning, Detail: "its database has 9 MiB", trouble: full},
		{Check: "alarms", Level: Error, Detail: "member ff has the alarm CORRUPT"},
		{Check: "alarms", Level: Error, Detail: "member ff has the alarm NOSPACE", trouble: full},
		{Check: "prefixes", Level: OK, Detail: "/registry/ 3 keys"},
	}
	got := nameFillers(slices.Clone(found))
	if got[2].Detail != "member ff has the alarm NOSPACE; it has /registry/ 3 keys" || got[0].Detail != found[0].Detail {
		t.Errorf("%+v", got)
	}
	if got := nameFillers(slices.Clone(found[:1:1])); got[0].Detail != found[0].Detail {
		t.Errorf("%+v", got)
	}
	if got := nameFillers([]Finding{found[0], found[3]}); got[0].Detail != "its database has 9 MiB; it has /registry/ 3 keys" {
		t.Errorf("%+v", got)
	}
}

func TestTroubleOf(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]trouble{
		nil:                                      untroubled,
		errors.New("a test"):                     untroubled,
		context.DeadlineExceeded:                 unanswered,
		rpctypes.ErrNoLeader:                     unanswered,
		rpctypes.ErrTimeout:                      unanswered,
		rpctypes.ErrPermissionDenied:             denied,
		rpctypes.ErrUserEmpty:                    anonymous,
		rpctypes.ErrNoSpace:                      full,
		fmt.Errorf("x: %w", rpctypes.ErrNoSpace): full,
	} {
		if got := troubleOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// The one finding says how many members are missing, or that those there have no leader.
func TestJudgeQuorum(t *testing.T) {
	t.Parallel()
	member := func(endpoint string, leader uint64) answer {
		return answer{endpoint: endpoint, status: (*clientv3.StatusResponse)(&pb.StatusResponse{Header: &pb.ResponseHeader{}, Leader: leader})}
	}
	silent := func(endpoint string) answer { return answer{endpoint: endpoint, err: context.DeadlineExceeded} }
	for name, tt := range map[string]struct {
		answers []answer
		voters  int
		want    string // empty: the endpoint's own finding says it
	}{
		"two of three":                    {[]answer{member("a", 0), silent("b"), silent("c")}, 3, "2 of 3 members do not answer, so that etcd has no leader"},
		"the last one still has a leader": {[]answer{member("a", 7), silent("b"), silent("c")}, 0, "2 of 3 members do not answer"},
		"one endpoint of three members":   {[]answer{member("a", 0)}, 3, "2 of 3 members do not answer"},
		"all":                             {[]answer{silent("a"), silent("b")}, 0, "none of the 2 endpoints answers"},
		"the only one":                    {[]answer{silent("a")}, 0, ""},
		"an election":                     {[]answer{member("a", 0), member("b", 0), silent("c")}, 3, "the members have elected no leader"},
		"a slow disk":                     {[]answer{member("a", 7), member("b", 7), member("c", 7)}, 3, "the members have a leader, but no request is answered: a test"},
		"users only":                      {[]answer{{endpoint: "a", err: rpctypes.ErrUserEmpty}, silent("b"), silent("c")}, 0, "2 of 3 members do not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			e := Examination{Commands: Commands{Member: "etcdctl"}}
			e.judgeQuorum(errors.New("a test"), tt.answers, make([]*pb.Member, tt.voters))
			if tt.want == "" {
				if len(e.Findings) > 0 {
					t.Errorf("%+v", e.Findings)
				}
				return
			}
			e.has(t, Error, "quorum", tt.want)
		})
	}
}
