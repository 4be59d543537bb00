package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/permissions"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// examine returns an examination of an etcd of its own.
func examine(t *testing.T) (*Examination, *clientv3.Client) {
	t.Helper()
	server := testetcd.Start(t)
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(server.Client), etcdclaims.Config{Prefix: testetcd.Prefix(t), Owner: "a"})
	return &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second}, claims.Etcd()
}

func (e *Examination) has(t *testing.T, l Level, check, text string) {
	t.Helper()
	if !slices.ContainsFunc(e.Findings, func(f Finding) bool {
		return f.Level == l && f.Check == check && strings.Contains(f.Detail, text)
	}) {
		t.Errorf("no %s of %s with %q: %+v", l, check, text, e.Findings)
	}
}

// hasNone wants no finding of a check.
func (e *Examination) hasNone(t *testing.T, check string) {
	t.Helper()
	for _, f := range e.Findings {
		if f.Check == check {
			t.Errorf("%+v", f)
		}
	}
}

// Only a trial changes anything.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	if _, err := e.Claims.TryAcquire(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		t.Helper()
		leases, err := etcd.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status, err := etcd.Status(t.Context(), etcd.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("revision %d, leases %v, %d entries in the log", leases.Revision, leases.Leases, status.RaftIndex)
	}
	before := state()
	e.Thorough = true
	e.Examine(t.Context(), false)
	if len(e.Members) != 1 || !e.Members[0].Leader {
		t.Errorf("%+v", e.Members)
	}
	if after := state(); after != before {
		t.Errorf("%s, before: %s", after, before)
	}
	e.has(t, OK, "claims", "1 key is held")
	e.has(t, OK, "sessions", "1, none renews late")
	for _, f := range e.Findings {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
}

// A session that nobody renews is late, before its lease ends.
func TestLateSession(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	lease, err := etcd.Grant(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), e.Claims.Prefix()+"session/x/live/1", `{"v":1,"owner":"frozen"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		e.Findings = nil
		e.sessions(t.Context())
		if e.Findings[0].Level == Warning || time.Now().After(end) {
			break
		}
	}
	e.has(t, Warning, "sessions", "the renewals of 1 of the 1 that were read are overdue: frozen")
}

// The clocks of processes are compared in the true order of their starts, and with the one of doctor.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		after  []time.Duration // noon, by the clock of each
		by     time.Duration
		ahead  int
		behind int
	}{
		"all right":          {[]time.Duration{0, 10, 20, 3600}, 0, 0, 0},
		"one ahead":          {[]time.Duration{0, 70, 20, 3600}, 50, 1, 2},
		"one behind":         {[]time.Duration{0, 10, -40, 3600}, 50, 1, 2},
		"ahead of this host": {[]time.Duration{0, 10, 20, 15}, 5, 2, 3},
		"nothing between":    {[]time.Duration{0, 600, 1000, 3600}, 0, 0, 0},
		"all at once":        {[]time.Duration{10, 10, 10, 10}, 0, 0, 0},
	} {
		var starts []start
		for i, after := range tt.after {
			starts = append(starts, start{fmt.Sprint(i), int64(i), noon.Add(after * time.Second)})
		}
		slices.Reverse(starts)
		ahead, behind, by := apart(starts)
		if by != tt.by*time.Second || by > 0 && (ahead.owner != fmt.Sprint(tt.ahead) || behind.owner != fmt.Sprint(tt.behind)) {
			t.Errorf("%s: %s is ahead of %s by %s", name, ahead.owner, behind.owner, by)
		}
	}
}

// What changes hands, or follows its lease, between two readings is no ghost.
func TestFalseGhosts(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	ctx := t.Context()
	claim := func(key string) *etcdclaims.Claim {
		t.Helper()
		c, err := e.Claims.TryAcquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	claim("kept")
	moved := claim("moved")
	put := func(name string) {
		t.Helper()
		if _, err := etcd.Put(ctx, e.Claims.Prefix()+"wait/"+keyspace.Digest("k")+"/"+name, `{"v":1}`); err != nil {
			t.Fatal(err)
		}
	}
	put("stays")
	put("changes")
	suspects := func(context.Context) ([]suspect, error) {
		r, err := e.read(ctx)
		for _, i := range r.held {
			r.gone[i.Lease] = true
		}
		return e.suspects(r), err
	}
	before, err := suspects(ctx)
	if err != nil || len(before) != 5 { // the first place is also that of a free key
		t.Fatal(before, err)
	}
	if err := moved.Release(ctx); err != nil {
		t.Fatal(err)
	}
	claim("moved")
	put("changes")
	got, unconfirmed := confirm(ctx, before, suspects)
	if ghosts := namesOf(got, "ghost"); !slices.Equal(ghosts, []string{"kept"}) || unconfirmed != "" {
		t.Errorf("%q%s", ghosts, unconfirmed)
	}
	if places := namesOf(got, "ghost place"); len(places) != 1 || !strings.HasSuffix(places[0], "/stays") {
		t.Errorf("%q", places)
	}
}

// The features are the rows of the document.
func TestFeaturesAreDocumented(t *testing.T) {
	t.Parallel()
	rows, err := permissions.Table("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range features {
		delete(rows[f.row], permissions.Data) // doctor does not know where that is
		if !maps.Equal(rows[f.row], f.needs) {
			t.Errorf("%q needs %v, the document says %v", f.row, f.needs, rows[f.row])
		}
		delete(rows, f.row)
	}
	delete(rows, "etcdguard.NewKV with a claim") // needs what the claim needs
	if len(rows) > 0 {
		t.Errorf("doctor does not know %v", slices.Collect(maps.Keys(rows)))
	}
}

// The TTL to judge by is the shortest one in use, if none is given.
func TestShortestTTL(t *testing.T) {
	t.Parallel()
	e, _ := examine(t)
	if got := e.shortestTTL(t.Context()); got != 0 {
		t.Errorf("without sessions: %s", got)
	}
	for _, ttl := range []time.Duration{time.Minute, 30 * time.Second} {
		if _, err := e.Claims.TryAcquire(t.Context(), ttl.String(), etcdclaims.TTL(ttl)); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.shortestTTL(t.Context()); got != 30*time.Second {
		t.Errorf("got %s", got)
	}
}

// etcd before 3.6 does not report its quota.
func TestQuotaNotKnown(t *testing.T) {
	t.Parallel()
	var e Examination
	e.space("h1:2379", &clientv3.StatusResponse{DbSize: 5 << 30, DbSizeInUse: 4 << 30})
	if f := e.Findings[0]; f.Level != OK || f.Detail != "5120 MiB, of a quota that etcd does not report" {
		t.Errorf("%+v", f)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	var e Examination
	e.Login(false, false, 0)
	if len(e.Findings) > 0 {
		t.Errorf("%+v", e.Findings)
	}
	e.Login(false, true, 0)
	e.Login(true, false, 0)
	e.Login(true, true, 80*time.Millisecond)
	e.has(t, OK, "auth", "by client certificate")
	e.has(t, Warning, "auth", "by password: each login costs etcd a bcrypt")
	e.has(t, Warning, "auth", "a login took 80ms")
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ttl, p99, least time.Duration
		want            Level
	}{
		{15 * time.Second, 10 * time.Millisecond, 5 * time.Second, OK},
		{15 * time.Second, 250 * time.Millisecond, 15 * time.Second, OK},
		{15 * time.Second, 251 * time.Millisecond, 16 * time.Second, Warning},
		{15 * time.Second, 2600 * time.Millisecond, 156 * time.Second, Error},
	} {
		l, remedy, text := fit(c.ttl, c.p99)
		if l != c.want || !strings.Contains(remedy+text, c.least.String()) {
			t.Errorf("%+v: %s, %s, %s", c, l, remedy, text)
		}
	}
}
