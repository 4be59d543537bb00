package ownwait

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A handler that waits for a key of its own client is logged after ownWait, and at most once a minute
// for each key. Nothing else is.
func TestWatch(t *testing.T) {
	t.Parallel()
	mine, other := fencing.Token{Key: "mine", Fence: 1}, fencing.Token{Key: "other", Fence: 2}
	for _, tt := range []struct {
		name  string
		under *fencing.Token // the claim whose handler waits
		key   string
		waits time.Duration
		calls int
		want  int
	}{
		{"own key", &mine, "mine", time.Minute, 1, 1},
		{"another own key", &mine, "other", time.Minute, 1, 1},
		{"many calls", &mine, "other", 50 * time.Second, 100, 1},
		{"a call a minute", &mine, "other", time.Second + ownWaitAgain, 3, 3},
		{"no handler", nil, "other", time.Minute, 1, 0},
		{"of another client", &fencing.Token{Key: "mine", Fence: 7}, "other", time.Minute, 1, 0},
		{"for another client", &mine, "foreign", time.Minute, 1, 0},
		{"a short wait", &mine, "other", ownWait - 1, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				w := New(zap.New(core), func() []Claim {
					return []Claim{{Token: mine, Key: "mine", From: here()}, {Token: other, Key: "other", From: here()}}
				})
				ctx := context.Background()
				if tt.under != nil {
					ctx = fencing.NewContext(ctx, *tt.under)
				}
				for i := range tt.calls {
					end := w.Watch(ctx, tt.key, here())
					if i == tt.calls-1 || tt.calls == tt.want {
						time.Sleep(tt.waits)
						end()
					} else {
						defer end()
					}
				}
				synctest.Wait()
				if logs.Len() != tt.want {
					t.Fatalf("%d lines, want %d", logs.Len(), tt.want)
				}
				for _, line := range logs.All() {
					f := line.ContextMap()
					for _, at := range []string{"acquired", "caller", "holdsFrom"} {
						if file, n, _ := strings.Cut(fmt.Sprint(f[at]), ".go:"); filepath.Base(file) != "ownwait_test" || n == "0" {
							t.Errorf("%s is %v", at, f[at])
						}
					}
					if f["key"] != tt.key || f["holds"] != tt.under.Key {
						t.Error(f)
					}
				}
			})
		})
	}
}

// here is a call of this file.
func here() Site { return Caller() }

// Only so many keys are remembered.
func TestToldIsBounded(t *testing.T) {
	t.Parallel()
	var w Watcher
	for i := range 10 * mostTold {
		if !w.due(fmt.Sprint(i)) {
			t.Fatalf("line about key %d withheld", i)
		}
	}
	if len(w.told) > mostTold {
		t.Errorf("%d keys are remembered", len(w.told))
	}
}

// A site that was not noted has no text.
func TestNoSite(t *testing.T) {
	t.Parallel()
	if s := (Site{}).String(); s != "" {
		t.Error(s)
	}
}
