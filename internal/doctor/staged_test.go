package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// until repeats a check until it has found something, for half a minute at most.
func (e *Examination) until(t *testing.T, l Level, check, text string, examine func(ctx context.Context)) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		e.Findings = nil
		examine(t.Context())
		for _, f := range e.Findings {
			if f.Level == l && f.Check == check && strings.Contains(f.Detail, text) {
				return
			}
		}
	}
	e.has(t, l, check, text)
}

func TestZombie(t *testing.T) {
	t.Parallel()
	e, _ := examine(t)
	end, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- e.Claims.TryRun(t.Context(), "orders/7", func(context.Context) error {
			<-end // the handler does not stop with its context
			return nil
		}, etcdclaims.MaxHold(4*time.Second))
	}()
	e.until(t, Warning, "claims", "zombies: orders/7", e.claims)
	close(end)
	<-done
}

// withoutLease is the leases of an etcd that has forgotten one, whose keys it still has. etcd
// itself deletes both in one step: only faults of it leave such keys.
type withoutLease struct {
	clientv3.Lease
	forgotten clientv3.LeaseID
}

func (w withoutLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	if id == w.forgotten {
		return &clientv3.LeaseTimeToLiveResponse{ID: id, TTL: -1}, nil
	}
	return w.Lease.TimeToLive(ctx, id, opts...)
}

func TestGhostHolder(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	lease, err := etcd.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), e.Claims.OwnKey("orders/7"), `{"v":1,"owner":"dead"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	e.claims(t.Context())
	e.has(t, OK, "claims", "1 key is held")
	etcd.Lease = withoutLease{etcd.Lease, lease.ID}
	e.claims(t.Context())
	e.has(t, Warning, "claims", "ghosts, whose lease is gone: orders/7")
}

// freeURL returns a URL of this machine at which nobody listens.
func freeURL(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

func TestLearner(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	ctx := t.Context()
	peer := freeURL(t)
	added, err := etcd.MemberAddAsLearner(ctx, []string{peer.String()})
	if err != nil {
		t.Fatal(err)
	}
	e.members(ctx)
	e.has(t, Warning, "members", fmt.Sprintf("member %x has never started", added.Member.ID))
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name, cfg.LogLevel, cfg.LogOutputs = t.TempDir(), "learner", "panic", []string{"/dev/null"}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	client := freeURL(t)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ClusterState = embed.ClusterStateFlagExisting
	var peers []string
	for _, m := range added.Members {
		name := m.Name
		if m.ID == added.Member.ID {
			name = cfg.Name
		}
		peers = append(peers, name+"="+m.PeerURLs[0])
	}
	cfg.InitialCluster = strings.Join(peers, ",")
	learner, err := embed.StartEtcd(cfg)
	for try := 0; err != nil && try < 20 && retry.Pause(ctx, try); try++ { // a young cluster has not agreed on its version
		learner, err = embed.StartEtcd(cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(learner.Close)
	e.until(t, Warning, "members", "member learner is a learner", e.members)
	e.has(t, Warning, "members", "not among the endpoints: learner ("+client.String()+")")
}

// A fourth member that was added and never started leaves an even number.
func TestMemberNeverStarted(t *testing.T) {
	t.Parallel()
	c := testetcd.StartCluster(t, 3)
	etcd := c.Client(t)
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t), Owner: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claims.Close(context.Background()) })
	e := &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second}
	e.members(t.Context())
	e.has(t, OK, "members", "3, of which 1 may fail")
	peer := freeURL(t)
	added := uint64(0)
	for end := time.Now().Add(30 * time.Second); added == 0; time.Sleep(200 * time.Millisecond) {
		resp, err := etcd.MemberAdd(t.Context(), []string{peer.String()}) // refused until all have been connected for a while
		if err == nil {
			added = resp.Member.ID
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	e.Findings = nil
	e.members(t.Context())
	e.has(t, Warning, "members", fmt.Sprintf("member %x has never started", added))
	e.has(t, Warning, "members", "there are 4")
}
