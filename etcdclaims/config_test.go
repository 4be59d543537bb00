package etcdclaims_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		cfg  etcdclaims.Config
		says []string // what is wrong, and what would be right
	}{
		{"prefix without a slash", etcdclaims.Config{Prefix: "/claims"}, []string{`Prefix "/claims"`, "slash"}},
		{"prefix of a slash", etcdclaims.Config{Prefix: "/"}, []string{`Prefix "/"`, "every other user"}},
		{"prefix among claims", etcdclaims.Config{Prefix: "/a/own/"}, []string{`Prefix "/a/own/"`, `"/a/"`}},
		{"prefix below claims", etcdclaims.Config{Prefix: "a/own/b/c/"}, []string{`Prefix "a/own/b/c/"`, `"a/"`}},
		{"prefix among notes", etcdclaims.Config{Prefix: "/a/note/"}, []string{`Prefix "/a/note/"`, `"/a/"`}},
		{"prefix among work", etcdclaims.Config{Prefix: "/a/b/work/own/"}, []string{`Prefix "/a/b/work/own/"`, `"/a/b/"`}},
		{"prefix with a newline", etcdclaims.Config{Prefix: "/a\nb/"}, []string{`Prefix "/a\nb/"`, "printable"}},
		{"prefix not UTF-8", etcdclaims.Config{Prefix: "\xff/"}, []string{`Prefix "\xff/"`, "UTF-8"}},
		{"prefix too long", etcdclaims.Config{Prefix: strings.Repeat("x", 1024) + "/"}, []string{`Prefix "xxx`, "1024"}},
		{"owner with a control character", etcdclaims.Config{Owner: "a\x00b"}, []string{`Owner "a\x00b"`, "printable"}},
		{"owner not UTF-8", etcdclaims.Config{Owner: "\xff"}, []string{`Owner "\xff"`, "UTF-8"}},
		{"owner too long", etcdclaims.Config{Owner: strings.Repeat("x", 1025)}, []string{`Owner "xxx`, "1024"}},
		{"TTL below the least", etcdclaims.Config{TTL: 4999 * time.Millisecond}, []string{"TTL 4.999s", "5s", "AllowShortTTL"}},
		{"TTL negative", etcdclaims.Config{TTL: -time.Second}, []string{"TTL -1s is negative"}},
		{"short TTL too short", etcdclaims.Config{TTL: time.Second, AllowShortTTL: true}, []string{"TTL 1s is below 2s"}},
		{"TTL huge", etcdclaims.Config{TTL: 366 * day}, []string{"TTL 8784h", "8760h"}},
		{"TTL the hugest", etcdclaims.Config{TTL: 1<<63 - 1}, []string{"TTL 2562047h", "8760h"}},
		{"drain negative", etcdclaims.Config{Drain: -time.Second}, []string{"Drain -1s"}},
		{"drain too long for the TTL", etcdclaims.Config{TTL: 15 * time.Second, Drain: 4 * time.Second}, []string{"TTL 15s", "Drain 4s", "5s"}},
		{"drain longer than the TTL", etcdclaims.Config{TTL: 15 * time.Second, Drain: time.Hour}, []string{"TTL 15s", "Drain 1h"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, passthrough := range []bool{false, true} {
				use := etcd
				if passthrough {
					use = nil // a mistake shows though it does not matter yet
				}
				c, err := newOrPassthrough(use, tt.cfg)
				if err == nil || c != nil {
					t.Fatal("it was taken")
				}
				for _, want := range tt.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
				if !strings.HasPrefix(err.Error(), "etcdclaims: config: ") || len(err.Error()) > 400 {
					t.Errorf("text %q", err)
				}
			}
		})
	}
}

func TestConfigTaken(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]etcdclaims.Config{
		"zero":                 {},
		"least TTL":            {TTL: etcdclaims.MinTTL},
		"short TTL":            {TTL: 2 * time.Second, AllowShortTTL: true},
		"TTL of 3 s":           {TTL: 3 * time.Second, AllowShortTTL: true},
		"TTL of a year":        {TTL: 365 * 24 * time.Hour},
		"fraction of a second": {TTL: 5500 * time.Millisecond},
		"short drain":          {Drain: time.Millisecond},
		"long drain":           {Drain: 3 * time.Second},
		"owner in UTF-8":       {Owner: "worker Ω 7"},
		"prefix of one name":   {Prefix: "/team/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, server *claimtest.Server) {
				c := newClient(t, server.Etcd(t), cfg)
				cl := tryClaim(t, c, "k")
				if cl.Owner() == "" {
					t.Error("no owner")
				}
				if ttl := lookUp(t, c, "k").TTL; ttl <= 0 {
					t.Errorf("TTL %v", ttl)
				}
				release(t, cl)
			})
		})
	}
}

// The error of an option names that option alone.
func TestOptionErrorNamesTheOption(t *testing.T) {
	t.Parallel()
	c := newClient(t, testetcd.Shared(t).Client(t), etcdclaims.Config{Prefix: testetcd.Prefix(t)})
	for says, opt := range map[string]etcdclaims.AcquireOption{
		"MaxHold -1ns is negative":  etcdclaims.MaxHold(-1),
		"MinHold -1ns is negative":  etcdclaims.MinHold(-1),
		"Progress -1ns is negative": etcdclaims.Progress(-1),
		"Prefer -1 is negative":     etcdclaims.Prefer(-1),
		"MinHold 8784h0m0s is over": etcdclaims.MinHold(366 * 24 * time.Hour),
		"TTL 1ms is below 5s; a":    etcdclaims.TTL(time.Millisecond),
	} {
		_, err := c.TryAcquire(t.Context(), "k", opt)
		if err == nil || !strings.HasPrefix(err.Error(), `acquire "k": `+says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

func TestConfigNewDoesNoIO(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	prefix := testetcd.Prefix(t)
	noErr(t, etcd.Close())
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	noErr(t, err)
	if n := c.Stats().Requests; n != 0 {
		t.Errorf("%d requests", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.TryAcquire(ctx, "k")
	if err == nil {
		t.Error("a closed etcd client gave a claim")
	} else if !strings.Contains(err.Error(), "the etcd client was closed: close the client of claims first") {
		t.Error(err)
	}
	noErr(t, c.Close(t.Context()))
	noErr(t, c.Close(t.Context()))
	_, err = c.TryAcquire(t.Context(), "k")
	wantIs(t, err, etcdclaims.ErrClosed)
}

func TestExponentialBackoff(t *testing.T) {
	t.Parallel()
	b := etcdclaims.ExponentialBackoff(time.Second, 10*time.Minute)
	for attempt, most := range map[int]time.Duration{
		-5: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 10: 512 * time.Second,
		11: 10 * time.Minute, 64: 10 * time.Minute, 1000: 10 * time.Minute, math.MaxInt: 10 * time.Minute,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := b(attempt)
			if d < most/2 || d > most {
				t.Errorf("attempt %d waits %v, want half of %v to all of it", attempt, d, most)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("attempt %d: %d different waits of 100", attempt, len(seen))
		}
	}
	for _, d := range []time.Duration{0, 1, -1} {
		_ = etcdclaims.ExponentialBackoff(d, d)(3) // does not panic
		_ = etcdclaims.ExponentialBackoff(d, time.Minute)(3)
	}
	if d := etcdclaims.ExponentialBackoff(time.Hour, time.Minute)(1); d > time.Minute {
		t.Errorf("%v is over the limit", d)
	}
	for base := time.Duration(1); base > 0; base = base*3 + 1 { // shifted, many would be small again
		for attempt := range 200 {
			before, d := base, etcdclaims.ExponentialBackoff(base, 1<<62)(attempt)
			for i := 1; i < attempt && before < 1<<62; i++ {
				before = min(before, 1<<61) * 2
			}
			if want := min(before, 1<<62); d < want/2 || d > want {
				t.Fatalf("attempt %d from %d waits %d, want half of %d to all of it", attempt, base, d, want)
			}
		}
	}
	if d := etcdclaims.ExponentialBackoff(1<<61, 1<<62)(40); d < 1<<60 {
		t.Errorf("overflow: %v", d)
	}
}
