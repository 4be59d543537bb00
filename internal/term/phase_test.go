package term

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
)

// verdict names an error of the phases.
func verdict(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, claimerr.ErrLost):
		return "lost"
	case errors.Is(err, claimerr.ErrReleased):
		return "released"
	}
	return err.Error()
}

// ways are what brings a term from one phase to another.
var ways = map[string]func(t *Term) error{
	"begin":       (*Term).begin,
	"beginOrWant": (*Term).beginOrWant,
	"beginLoss":   (*Term).beginLoss,
	"BeginZombie": func(t *Term) error {
		if !t.BeginZombie(claimerr.Loss{Reason: claimerr.Outlived}) {
			return claimerr.ErrReleased // the caller does not go on
		}
		return nil
	},
	"back":   func(t *Term) error { t.back(); return nil },
	"stay":   func(t *Term) error { t.stay(context.Background()); return nil },
	"finish": func(t *Term) error { t.finish(claimerr.ErrReleased); return nil },
	"Lose": func(t *Term) error {
		if !t.Lose(claimerr.Loss{Reason: claimerr.Expired}) {
			return claimerr.ErrReleased
		}
		return nil
	},
	"TakeAway": func(t *Term) error {
		if !t.TakeAway(claimerr.Loss{Reason: claimerr.Deleted}) {
			return claimerr.ErrReleased
		}
		return nil
	},
	"reach": func(t *Term) error {
		t.reach(&limit{why: claimerr.Loss{Reason: claimerr.MaxHold}, from: t.terms.Clock.Now()}) // at once
		return nil
	},
}

// Each transition from each phase: what it returns, what Check and CheckSure say after it, and the phase.
func TestTransitions(t *testing.T) {
	t.Parallel()
	held := [][]string{nil, {"begin", "back"}, {"begin", "stay"}, {"beginLoss", "back"}}
	maybe := [][]string{{"begin"}, {"begin", "back", "begin"}}
	forGood := [][]string{{"beginOrWant"}}
	losing := [][]string{{"beginLoss"}, {"BeginZombie"}}
	released, lost := [][]string{{"begin", "finish"}, {"finish"}}, [][]string{{"Lose"}, {"begin", "Lose"}, {"TakeAway"}, {"Lose", "finish"}}
	for _, tt := range []struct {
		from             [][]string
		way              string
		returns          string
		check, checkSure string
		phase            phase
		wanted, asZombie bool
	}{
		{held, "begin", "nil", "released", "nil", phaseEnding, false, false},
		{held, "beginOrWant", "nil", "released", "released", phaseEnding, false, false},
		{held, "beginLoss", "nil", "nil", "nil", phaseEnding, false, false},
		{held, "BeginZombie", "nil", "nil", "nil", phaseEnding, false, false},
		{held, "reach", "nil", "lost", "lost", phaseEnded, false, false},
		{held, "back", "nil", "nil", "nil", phaseHeld, false, false},
		{held, "stay", "nil", "nil", "nil", phaseHeld, false, false},
		{held, "finish", "nil", "released", "released", phaseEnded, false, false},
		{held, "Lose", "nil", "lost", "lost", phaseEnded, false, false},
		{held, "TakeAway", "nil", "lost", "lost", phaseEnded, false, false},

		{maybe, "begin", "released", "released", "nil", phaseEnding, false, false},
		{maybe, "beginOrWant", "released", "released", "nil", phaseEnding, true, false},
		{maybe, "beginLoss", "released", "released", "nil", phaseEnding, false, false},
		{maybe, "BeginZombie", "released", "released", "nil", phaseEnding, false, true},
		{maybe, "reach", "nil", "released", "nil", phaseEnding, false, false},
		{maybe, "back", "nil", "nil", "nil", phaseHeld, false, false},
		{maybe, "stay", "nil", "nil", "nil", phaseHeld, false, false},
		{maybe, "Lose", "nil", "lost", "lost", phaseEnded, false, false},
		{maybe, "TakeAway", "released", "released", "nil", phaseEnding, false, false},

		{forGood, "begin", "released", "released", "released", phaseEnding, false, false},
		{forGood, "beginOrWant", "released", "released", "released", phaseEnding, true, false},
		{forGood, "BeginZombie", "released", "released", "released", phaseEnding, false, true},
		{forGood, "back", "nil", "released", "released", phaseHeld, false, false}, // to be lost at once
		{forGood, "TakeAway", "released", "released", "released", phaseEnding, false, false},
		{forGood, "Lose", "nil", "lost", "lost", phaseEnded, false, false},

		{losing, "begin", "released", "nil", "nil", phaseEnding, false, false},
		{losing, "beginOrWant", "released", "nil", "nil", phaseEnding, true, false},
		{losing, "reach", "nil", "nil", "nil", phaseEnding, false, false},
		{losing, "Lose", "nil", "lost", "lost", phaseEnded, false, false},

		{released, "begin", "released", "released", "released", phaseEnded, false, false},
		{released, "beginOrWant", "released", "released", "released", phaseEnded, false, false},
		{released, "BeginZombie", "released", "released", "released", phaseEnded, false, false},
		{released, "back", "nil", "released", "released", phaseEnded, false, false},
		{released, "stay", "nil", "released", "released", phaseEnded, false, false},
		{released, "Lose", "released", "released", "released", phaseEnded, false, false},
		{released, "TakeAway", "released", "released", "released", phaseEnded, false, false},

		{lost, "begin", "lost", "lost", "lost", phaseEnded, false, false},
		{lost, "beginOrWant", "lost", "lost", "lost", phaseEnded, false, false},
		{lost, "back", "nil", "lost", "lost", phaseEnded, false, false},
		{lost, "stay", "nil", "lost", "lost", phaseEnded, false, false},
		{lost, "reach", "nil", "lost", "lost", phaseEnded, false, false},
		{lost, "finish", "nil", "lost", "lost", phaseEnded, false, false},
	} {
		for _, before := range tt.from {
			in(t, func(t *testing.T, w *world) {
				term := w.hold(t, w.session(t), "k", Given{})
				for _, way := range before {
					if err := ways[way](term); err != nil {
						t.Fatal(before, err)
					}
				}
				returns := verdict(ways[tt.way](term))
				_, sure := term.CheckSure()
				if check := verdict(term.Check()); returns != tt.returns || check != tt.check || verdict(sure) != tt.checkSure || term.life.phase != tt.phase {
					t.Errorf("%v, then %s: returns %s, Check %s, CheckSure %s, phase %d", before, tt.way, returns, check, verdict(sure), term.life.phase)
				}
				if term.life.wanted != tt.wanted || (term.life.zombie != nil) != tt.asZombie || term.IsHeld() != (tt.phase == phaseHeld) {
					t.Errorf("%v, then %s: wanted %v, zombie %v", before, tt.way, term.life.wanted, term.life.zombie)
				}
				if ended := w.Keys.Term("k") == nil; ended != (tt.phase == phaseEnded) || ended != (term.s.Size() == 0) {
					t.Errorf("%v, then %s: the client has it no more: %v", before, tt.way, ended)
				}
			})
		}
	}
}

// What becomes of a term whose end was refused, by what came meanwhile.
func TestStay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		meanwhile []string
		max       bool
		calls     string
		key       string // who has it then; "mine"
		check     string
	}{
		{"nothing came", nil, false, "", "mine", "nil"},
		{"a release", []string{"beginOrWant"}, false, "ended k", "", "released"},
		{"a release, and then an end that may be refused", []string{"beginOrWant", "begin"}, false, "ended k", "", "released"},
		{"its handler outlived its drain", []string{"BeginZombie"}, false, "lost k: its handler outlived its context", protocol.KindZombie, "lost"},
		{"that, and a release", []string{"BeginZombie", "beginOrWant"}, false, "lost k: its handler outlived its context", protocol.KindZombie, "lost"},
		{"the end of its MaxHold", nil, true, "lost k: held for its maximum", protocol.KindZombie, "lost"},
		{"the end of its session", []string{"Lose"}, false, "", "mine", "lost"},
	} {
		in(t, func(t *testing.T, w *world) {
			given := Given{}
			if tt.max {
				given.MaxHold = ttl / 3
			}
			term := w.hold(t, w.session(t), "k", given)
			if err := term.begin(); err != nil {
				t.Fatal(err)
			}
			if tt.max {
				pass(given.MaxHold + 1)
			}
			same(t, tt.name+": meanwhile", w.Take(), "")
			for _, way := range tt.meanwhile {
				_ = ways[way](term)
			}
			term.stay(t.Context())
			pass(1)
			who, want := w.owner("k"), tt.key
			if want == "mine" {
				want = term.ID
			}
			if calls, check := w.Take(), verdict(term.Check()); calls != tt.calls || who != want || check != tt.check {
				t.Errorf("%s: calls %q, owner %q, Check %s", tt.name, calls, who, check)
			}
		})
	}
}

// A claim that its caller never got is undone, unless others share it by then.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{})
		if w.Terms.Share("k") != nil || w.Shareable("k") {
			t.Error("shared before its first caller has it")
		}
		term.Begin()
		if w.Terms.Share("k") != term || w.Terms.Share("l") != nil {
			t.Error("not shared")
		}
		undone := 0
		undo := func() { undone++ }
		term.GiveUp(undo)
		if undone != 0 || !term.IsHeld() {
			t.Error("undone under another caller")
		}
		term.GiveUp(undo)
		if undone != 1 || verdict(term.Err()) != "released" || w.Terms.Share("k") != nil || w.Take() != "ended k" {
			t.Error(undone, term.Err())
		}
	})
}
