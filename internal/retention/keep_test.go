package retention

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// owner has a claim, until it is lost.
type owner struct{ lost atomic.Bool }

func (o *owner) Err() error {
	if o.lost.Load() {
		return errors.New("lost")
	}
	return nil
}

// A lease lasts as long as the last claim whose key is on it, and a retention longer.
func TestLeaseIsRenewedForItsOwners(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, true)
		l := h.get(ls, 0)
		lost, ended := &owner{}, &owner{}
		for _, o := range []*owner{lost, ended} {
			ls.Own(l, o)
		}
		l.Leave(false)
		if l.Keys() != 2 {
			t.Errorf("%d keys are counted", l.Keys())
		}
		h.put(l)
		time.Sleep(5 * time.Hour)
		ls.Disown(ended)
		time.Sleep(5 * time.Hour)
		if !h.has(l) {
			t.Fatal("the lease of a claim has lapsed")
		}
		lost.lost.Store(true)
		time.Sleep(time.Hour - time.Minute)
		if !h.has(l) {
			t.Error("the lease lapses before the retention is over")
		}
		time.Sleep(15 * time.Minute)
		if h.has(l) {
			t.Error("the lease is kept without an owner")
		}
	})
}

// A lease without keys is revoked, unless a key may yet be put on it: that of a writer keeps it renewed,
// because it may become that of a claim.
func TestEmptyLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		with func(h *host, l *Lease)
		has  bool // after two slices
		goes bool // in the end
	}{
		"empty":      {with: func(_ *host, l *Lease) { l.Leave(false) }, goes: true},
		"doubted":    {with: func(_ *host, l *Lease) { l.Doubt(); l.Leave(false) }, has: true, goes: true},
		"with a key": {with: func(h *host, l *Lease) { h.put(l); l.Leave(true) }, has: true, goes: true},
		"written":    {with: func(_ *host, l *Lease) { l.Enter().Leave(false) }, has: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, h *host) {
				ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, true)
				l := h.get(ls, 0)
				is.with(h, l)
				time.Sleep(13 * time.Minute)
				if h.has(l) != is.has {
					t.Errorf("after two slices the lease is there: %v", h.has(l))
				}
				time.Sleep(3 * time.Hour)
				if h.has(l) == is.goes {
					t.Errorf("after three retentions the lease is there: %v", h.has(l))
				}
			})
		})
	}
}

// When the client is closed, its leases without keys go at once, unless a key may yet be put on them.
func TestCloseRevokesEmptyLeases(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, true)
		empty, full, written := h.get(ls, 0), h.get(ls, time.Hour), h.get(ls, 2*time.Hour)
		empty.Leave(false)
		h.put(full)
		full.Leave(true)
		h.released(context.Background())
		if h.has(empty) || !h.has(full) || !h.has(written) {
			t.Errorf("the empty lease is there: %v, that with a key: %v, that of a writer: %v", h.has(empty), h.has(full), h.has(written))
		}
	})
}

// A lease that was revoked while it has owners is reported, and given up.
func TestRevokedLeaseOfOwnersIsReported(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		seen, logs := observer.New(zap.WarnLevel)
		ls := NewLeases(h, zap.New(seen), "keys", time.Hour, true)
		l := h.get(ls, 0)
		ls.Own(l, &owner{})
		l.Leave(false)
		if err := h.Revoke(context.Background(), l.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if all := logs.All(); len(all) != 1 || all[0].Message != "keys under way were forgotten: their lease was revoked" {
			t.Errorf("the log has %v", all)
		}
	})
}

// Owners whose claims were lost are not kept in memory.
func TestLostOwnersAreForgotten(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, true)
		l := h.get(ls, 0)
		for range 1000 {
			o := new(owner)
			o.lost.Store(true)
			ls.Own(l, o)
		}
		if len(ls.owners) > 65 {
			t.Errorf("%d owners", len(ls.owners))
		}
	})
}
