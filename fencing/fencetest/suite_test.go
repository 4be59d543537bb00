package fencetest_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/fencetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	fencetest.TestGate(t, func(*testing.T) fencetest.Subject { return fencetest.Subject{Gate: new(fencing.Memory)} })
}

func TestRightGate(t *testing.T) {
	fencetest.TestGate(t, func(*testing.T) fencetest.Subject { return new(ledger).subject() })
}

// A gate need not know what became of an admission, as long as it says so.
func TestUnsureGate(t *testing.T) {
	fencetest.TestGate(t, func(*testing.T) fencetest.Subject { return (&ledger{fault: fault{unsure: true}}).subject() })
}

// ledger is a resource in memory whose admission and effect are one step, unless
// it has a fault.
type ledger struct {
	mu      sync.Mutex
	marks   map[string]int64
	effects map[string][]string
	fault
}

// fault is what can be wrong with a gate.
type fault struct {
	normal    func(key string) string
	round     func(fence int64) int64
	refuse    func(t fencing.Token, newest int64) error
	strict    bool // equal does not pass
	trusting  bool // what is not valid passes
	hasty     bool // looks, and writes later
	forgetful bool // after a restart
	apart     bool // the effect comes some time after the admission
	early     bool // the effect comes before the admission
	lowers    bool // a crash takes the mark back to what it was before the last
	effective bool // a crash does not take back the effect
	apiece    bool // each process looks, and writes later
	unsure    bool // does not know of some admissions what became of them; no fault
	touchy    bool // takes a caller that is gone for a stale one
}

func (l *ledger) subject() fencetest.Subject {
	l.marks, l.effects = map[string]int64{}, map[string][]string{}
	return fencetest.Subject{
		Gate:    &process{ledger: l},
		Restart: l.restart,
		Write:   l.write,
		Crash:   l.crash,
		Effects: func(_ context.Context, key string) ([]string, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return slices.Clone(l.effects[key]), nil
		},
	}
}

// process is the gate of one process on the ledger.
type process struct {
	*ledger
	own   sync.Mutex
	calls int // of the gate that is unsure
}

func (p *process) Admit(ctx context.Context, t fencing.Token) error {
	if p.apiece {
		p.own.Lock()
		defer p.own.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.unsure && t.Validate() == nil && p.calls%3 == 1 {
		return fmt.Errorf("asking: %w", fencing.ErrUnknown)
	}
	err := p.admit(ctx, t)
	if p.unsure && t.Validate() == nil && p.calls%3 == 2 {
		return fmt.Errorf("asking: %w (%v)", fencing.ErrUnknown, err != nil)
	}
	return err
}

func (l *ledger) admit(ctx context.Context, t fencing.Token) error {
	if err := t.Validate(); err != nil && !l.trusting {
		return err
	}
	if err := ctx.Err(); err != nil {
		if l.touchy {
			return &fencing.StaleError{Token: t}
		}
		return err
	}
	key, fence := t.Key, t.Fence
	if l.normal != nil {
		key = l.normal(key)
	}
	if l.round != nil {
		fence = l.round(fence)
	}
	newest := l.marks[key]
	if l.hasty || l.apiece {
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
		l.mu.Lock()
	}
	if fence < newest || l.strict && fence == newest {
		if l.refuse != nil {
			return l.refuse(t, newest)
		}
		return &fencing.StaleError{Token: t, Newest: newest}
	}
	l.marks[key] = fence
	return nil
}

func (l *ledger) write(ctx context.Context, t fencing.Token, effect string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := func() { l.effects[t.Key] = append(l.effects[t.Key], effect) }
	if l.early {
		have()
	}
	if err := l.admit(ctx, t); err != nil {
		return err
	}
	if l.apart {
		l.mu.Unlock()
		time.Sleep(rand.N(3 * time.Millisecond))
		l.mu.Lock()
	}
	if !l.early {
		have()
	}
	return nil
}

func (l *ledger) crash(ctx context.Context, t fencing.Token, effect string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := maps.Clone(l.marks)
	if err := l.admit(ctx, t); err != nil {
		return err
	}
	if l.effective {
		l.effects[t.Key] = append(l.effects[t.Key], effect)
	}
	l.marks = was // rolled back
	if l.lowers {
		l.marks[t.Key] = 0
	}
	return nil
}

func (l *ledger) restart(*testing.T) fencing.Gate {
	if l.forgetful {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.marks = map[string]int64{}
	}
	return &process{ledger: l}
}

// wrong are gates with one fault each.
var wrong = map[string]fault{
	"equal is refused":            {strict: true},
	"invalid is admitted":         {trusting: true},
	"looks before it writes":      {hasty: true},
	"locks in its process only":   {apiece: true},
	"forgets":                     {forgetful: true},
	"effect after the admission":  {apart: true},
	"effect before the admission": {early: true},
	"crash lowers the mark":       {lowers: true},
	"crash has the effect":        {effective: true},
	"gone is stale":               {touchy: true},
	"keys without case":           {normal: strings.ToLower},
	"keys without spaces":         {normal: strings.TrimSpace},
	"keys cut":                    {normal: func(key string) string { return key[:min(len(key), 767)] }},
	"one mark for all":            {normal: func(string) string { return "" }},
	"fences of 32 bits":           {round: func(f int64) int64 { return int64(uint32(f)) }},
	"fences are floats":           {round: func(f int64) int64 { return int64(float64(f) / 2) }},
	"stale has no sentinel":       {refuse: func(fencing.Token, int64) error { return fencing.ErrMalformed }},
	"stale has no facts":          {refuse: func(fencing.Token, int64) error { return fencing.ErrStale }},
	"stale is of another token":   {refuse: func(_ fencing.Token, n int64) error { return &fencing.StaleError{Newest: n} }},
	"stale tells a wrong fence":   {refuse: func(t fencing.Token, n int64) error { return &fencing.StaleError{Token: t, Newest: n + 1000} }},
}

var onWrong = flag.String("wrong", "", "run the suite on the gate with this fault")

func TestOnWrongGate(t *testing.T) {
	if *onWrong == "" {
		t.Skip("run by TestSuiteCanFail")
	}
	of, ok := wrong[*onWrong]
	if !ok {
		t.Skipf("there is no fault %q", *onWrong)
	}
	fencetest.TestGate(t, func(*testing.T) fencetest.Subject { return (&ledger{fault: of}).subject() })
}

// A suite that lets everything pass tells nothing: each fault must be found.
func TestSuiteCanFail(t *testing.T) {
	for fault := range wrong {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnWrongGate$", "-wrong="+fault)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !bytes.Contains(out, []byte("--- FAIL: TestOnWrongGate/")) {
				t.Errorf("not found: %v\n%s", err, out)
			}
			if bytes.Contains(out, []byte("panic:")) {
				t.Errorf("the suite panics:\n%s", out)
			}
		})
	}
}
