package group_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
)

// After a restore of a backup from before its start, a member joins again when the entry of
// its earlier process has lapsed.
func TestRestoreBeforeRestart(t *testing.T) {
	t.Parallel()
	for name, bump := range map[string]uint64{"revisions go on": 1_000_000, "revisions go back": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const partitions = 4
				first := w.join(config("a", partitions))
				v := w.view()
				w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
				backup := w.server.Snapshot(w.T)
				first.leave()
				second := w.join(config("a", partitions))
				w.within(5*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
				w.server.Restore(w.T, backup, bump)
				if bump == 0 {
					w.server.RaiseEpoch(w.T, "")
				}
				time.Sleep(4 * ttl)
				if err := second.Err(); err != nil || !ownsAll(v, second) {
					w.Errorf("the second a: %v; owners %v", err, counts(v))
				}
			})
		})
	}
}

// After a restore of a backup from before it replaced a process that still runs, a member
// replaces the entry of that process again.
func TestRestoreBeforeReplacement(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 4
		first := w.join(config("a", partitions))
		_, err := first.claims.TryAcquire(w.Context(), "unrelated") // keeps the lease alive on which the entry lies
		w.ok(err)
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		backup := w.server.Snapshot(w.T)
		second := w.join(config("a", partitions))
		<-first.Done()
		w.wantErr(first.Err(), group.ErrReplaced)
		w.server.Restore(w.T, backup, 1_000_000)
		time.Sleep(4 * ttl)
		if err := second.Err(); err != nil || !ownsAll(v, second) {
			w.Errorf("the second a: %v; owners %v", err, counts(v))
		}
	})
}

// ownsAll reports whether a process is a member and owns all partitions.
func ownsAll(v *group.View, p *process) bool {
	a := v.Assignment()
	for _, o := range a.Owners {
		if o.Instance != p.claims.Instance() {
			return false
		}
	}
	return len(a.Members) == 1 && a.Members[0].Instance == p.claims.Instance()
}
