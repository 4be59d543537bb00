package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMembersAgreeWhateverTheOrder(t *testing.T) {
	forRandomGroups(t, 500, func(t *testing.T, r *rand.Rand, members []MemberInfo, owners []string) {
		want := Balance(members, owners)
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if got := Balance(members, owners); !slices.Equal(got.Target, want.Target) {
			t.Fatalf("%v, and in another order %v", want.Target, got.Target)
		}
	})
}

// Each share is the exact one rounded down or up, and the moves are as few as any plan
// with such shares has.
func TestPlanIsExactAndMinimal(t *testing.T) {
	forRandomGroups(t, 2000, func(t *testing.T, _ *rand.Rand, members []MemberInfo, owners []string) {
		p := Balance(members, owners)
		got, has, weights := count(p.Target), count(owners), 0
		for _, m := range members {
			weights += m.weight()
		}
		fewest, spare, ups := 0, len(owners), 0 // moves from members, if no share is rounded up
		saved := 0
		for _, m := range members {
			low := len(owners) * m.weight() / weights
			high := low
			if len(owners)*m.weight()%weights > 0 {
				high++
			}
			if n := got[m.Name]; n < low || n > high || n != p.Share[m.Name] {
				t.Fatalf("%s has %d partitions and a share of %d, exact are %d to %d", m.Name, n, p.Share[m.Name], low, high)
			}
			spare -= low
			fewest += max(0, has[m.Name]-low)
			if high > low && has[m.Name] > low {
				saved++
			}
		}
		ups = min(saved, spare)
		moved := 0
		for _, m := range p.Moves {
			if m.From != "" {
				moved++
			}
			if m.From == m.To || p.Target[m.Partition] != m.To || m.Why == "" {
				t.Fatalf("move %+v", m)
			}
		}
		if moved != fewest-ups {
			t.Fatalf("%d partitions move, %d need to", moved, fewest-ups)
		}
		for partition, name := range owners {
			moves := slices.ContainsFunc(p.Moves, func(m Move) bool { return m.Partition == partition })
			if (p.Target[partition] != name) != moves {
				t.Fatalf("partition %d: owner %q, target %q, moves: %t", partition, name, p.Target[partition], moves)
			}
		}
	})
}

// Members that see some of the moves, in whatever order, have the same targets.
func TestPlanIsStableUnderItsOwnMoves(t *testing.T) {
	forRandomGroups(t, 2000, func(t *testing.T, r *rand.Rand, members []MemberInfo, owners []string) {
		want := Balance(members, owners)
		r.Shuffle(len(want.Moves), func(i, j int) { want.Moves[i], want.Moves[j] = want.Moves[j], want.Moves[i] })
		for _, m := range want.Moves {
			if r.IntN(4) == 0 {
				owners[m.Partition] = "" // released, and not yet claimed
			} else {
				owners[m.Partition] = m.To
			}
			if got := Balance(members, owners); !slices.Equal(got.Target, want.Target) {
				t.Fatalf("after some moves:\n%v\nbefore:\n%v", got.Target, want.Target)
			}
		}
	})
}

func TestJoinAndEndMoveOnlyTheirShare(t *testing.T) {
	forRandomGroups(t, 500, func(t *testing.T, r *rand.Rand, members []MemberInfo, owners []string) {
		for i := range members {
			members[i].Weight = 1
		}
		owners = Balance(members, owners).Target
		joined := Balance(append(members, MemberInfo{Name: fmt.Sprint("new", r.IntN(100))}), owners)
		if most := len(owners)/(len(members)+1) + 1; len(joined.Moves) > most {
			t.Fatalf("a new member moves %d of %d partitions, beside %d others", len(joined.Moves), len(owners), len(members))
		}
		for _, m := range joined.Moves {
			if m.To[:3] != "new" {
				t.Fatalf("a new member moves a partition from %s to %s", m.From, m.To)
			}
		}
		ends := r.IntN(len(members))
		name := members[ends].Name
		if left := Balance(slices.Delete(members, ends, ends+1), owners); len(members) > 1 {
			for _, m := range left.Moves {
				if owners[m.Partition] != name {
					t.Fatalf("the end of %s moves partition %d of %s", name, m.Partition, m.From)
				}
			}
		}
	})
}

func TestBalanceOfNobody(t *testing.T) {
	if p := Balance(nil, make([]string, 3)); len(p.Target) != 3 || p.Target[0] != "" || len(p.Moves) != 0 {
		t.Errorf("%+v", p)
	}
}

// Plans are made at each change: they must be cheap with all partitions.
func TestPlanOfTheMostPartitions(t *testing.T) {
	testetcd.SkipRace(t)
	var members []MemberInfo
	owners := make([]string, maxPartitions)
	for i := range 500 {
		members = append(members, MemberInfo{Name: fmt.Sprintf("m%03d", i), Weight: 1 + i%7})
		p := Balance(members, owners)
		if i > 0 && len(p.Moves) > p.Share[members[i].Name]+len(members) {
			t.Fatalf("member %d moves %d partitions, its share is %d", i, len(p.Moves), p.Share[members[i].Name])
		}
		owners = p.Target
	}
}

// forRandomGroups calls f with random members, and owners that are members, strangers or
// nobody.
func forRandomGroups(t *testing.T, n int, f func(t *testing.T, r *rand.Rand, members []MemberInfo, owners []string)) {
	t.Helper()
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		members := make([]MemberInfo, 1+r.IntN(9))
		equal := r.IntN(2) == 0
		for i := range members {
			members[i] = MemberInfo{Name: fmt.Sprint("m", i), Weight: r.IntN(6)}
			if equal {
				members[i].Weight = 1
			}
		}
		owners := make([]string, 1+r.IntN(60))
		skew := 1 + r.IntN(len(members)+2)
		for partition := range owners {
			if i := r.IntN(skew); i < len(members) {
				owners[partition] = members[i].Name
			} else if r.IntN(2) == 0 {
				owners[partition] = "stranger"
			}
		}
		f(t, r, members, owners)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func count(names []string) map[string]int {
	n := make(map[string]int)
	for _, name := range names {
		n[name]++
	}
	return n
}
