package claimlock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// requestTimeout bounds each read of the record. A candidate's context has no
// deadline.
const requestTimeout = 5 * time.Second

// stoppedLeading is the event that the elector records when a leadership is over.
const stoppedLeading = "stopped leading"

// Config configures a Lock.
type Config struct {
	// Key is the key that candidates claim. It names the election.
	Key string
	// Identity names the candidate, for people. It need not be unique: see
	// Lock.Identity.
	Identity string
	// Record is the etcd key of the record, outside the prefix of the client. Empty
	// means "/leaderelection/" followed by Key. All candidates must use the same.
	Record string
	// Event receives the events of the elector, such as "became leader". Nil drops
	// them.
	Event func(what string)
}

// A Lock is one candidate of an election. Give each elector a Lock of its own.
type Lock struct {
	claims   *etcdclaims.Client
	cfg      Config
	identity string

	mu    sync.Mutex
	claim *etcdclaims.Claim // of the leadership, until the elector has stopped
	last  snapshot
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a candidate. It does no I/O. A client without etcd is an error: each
// of its candidates would lead.
func New(claims *etcdclaims.Client, cfg Config) (*Lock, error) {
	switch {
	case claims.Passthrough() || errors.Is(claims.Unreachable(), etcdclaims.ErrNoClient):
		return nil, errors.New("claimlock: the client has no etcd")
	case cfg.Key == "" || cfg.Identity == "":
		return nil, errors.New("claimlock: Key and Identity must be set")
	}
	if cfg.Record == "" {
		cfg.Record = "/leaderelection/" + cfg.Key
	}
	return &Lock{claims: claims, cfg: cfg, identity: cfg.Identity + "_" + rand.Text()}, nil
}

// Identity returns Config.Identity with a random suffix. The elector takes a record
// with its own identity for its own leadership. Without the suffix a process that was
// started again under the same name would believe that it leads.
func (l *Lock) Identity() string { return l.identity }

// Describe names the election in log messages.
func (l *Lock) Describe() string { return "claim/" + l.cfg.Key }

// RecordEvent passes the event on. The elector records the end of each leadership,
// after which the Lock may lead again.
func (l *Lock) RecordEvent(what string) {
	if what == stoppedLeading {
		l.mu.Lock()
		l.claim = nil
		l.mu.Unlock()
	}
	if l.cfg.Event != nil {
		l.cfg.Event(what)
	}
}

// Claim returns the claim of the present leadership, or nil. The claim may be lost.
// Take it once, when OnStartedLeading begins: a later leadership has another claim.
func (l *Lock) Claim() *etcdclaims.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim
}

// Bind returns a context that also ends when the claim of the present leadership does,
// and that carries its token: see [etcdclaims.Claim.Bind]. Without a leadership the
// context has ended.
func (l *Lock) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	if claim := l.Claim(); claim != nil {
		return claim.Bind(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(fmt.Errorf("claimlock: %q: the leadership is over: %w", l.cfg.Key, etcdclaims.ErrLost))
	return ctx, func() {}
}

// Create implements [resourcelock.Interface]. It tries to lead if there is no record.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.acquire(ctx, r, 0)
	if apierrors.IsConflict(err) {
		return apierrors.NewAlreadyExists(resource, l.cfg.Key)
	}
	return err
}

// Update implements [resourcelock.Interface]. It renews the claim of the leader,
// releases it if r has no holder, and tries to lead otherwise. The error is a conflict
// if the claim was lost, or if another candidate leads.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	claim, last := l.claim, l.last
	l.mu.Unlock()
	switch {
	case r.HolderIdentity == "":
		return l.release(ctx, claim)
	case claim != nil:
		return l.renew(ctx, claim, r)
	case last.held:
		// Get has just seen the claim. Trying would cost a lease.
		return l.conflict(errors.New("the key is claimed"))
	default:
		return l.acquire(ctx, r, last.revision)
	}
}

// acquire begins a leadership if the key is free and the record has the revision, 0
// if there must be none.
func (l *Lock) acquire(ctx context.Context, r resourcelock.LeaderElectionRecord, revision int64) error {
	if l.Claim() != nil {
		return l.conflict(errors.New("the elector has not stopped since its last leadership"))
	}
	value, err := json.Marshal(record{LeaderElectionRecord: r})
	if err != nil {
		return fmt.Errorf("claimlock: lead %q: %w", l.cfg.Key, err)
	}
	claim, err := l.claims.TryAcquire(ctx, l.cfg.Key,
		etcdclaims.Manual(), // so that the elector's renewals, and nothing else, keep it
		etcdclaims.TTL(time.Duration(r.LeaseDurationSeconds)*time.Second),
		etcdclaims.If(clientv3.Compare(clientv3.ModRevision(l.cfg.Record), "=", revision)),
		etcdclaims.Then(clientv3.OpPut(l.cfg.Record, string(value))))
	switch {
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, etcdclaims.ErrRefused):
		return l.conflict(err)
	case err != nil:
		return fmt.Errorf("claimlock: lead %q: %w", l.cfg.Key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claim = claim
	return nil
}

// renew renews the lease, and then stores the record if the claim owns its key.
func (l *Lock) renew(ctx context.Context, claim *etcdclaims.Claim, r resourcelock.LeaderElectionRecord) error {
	value, err := json.Marshal(record{LeaderElectionRecord: r, Fence: claim.Fence()})
	if err == nil {
		err = claim.Renew(ctx)
	}
	if err == nil {
		_, err = claim.Txn(ctx).Then(clientv3.OpPut(l.cfg.Record, string(value))).Commit()
	}
	if lost := claim.Err(); lost != nil {
		return l.conflict(lost)
	}
	if err != nil {
		return fmt.Errorf("claimlock: renew %q: %w", l.cfg.Key, err)
	}
	return nil
}

// release gives the key up. A claim that is lost needs no release. The error is never
// a conflict, after which the elector would try again without a pause.
func (l *Lock) release(ctx context.Context, claim *etcdclaims.Claim) error {
	if claim == nil {
		return nil
	}
	if err := claim.Release(ctx); err != nil && !errors.Is(err, etcdclaims.ErrLost) {
		return fmt.Errorf("claimlock: release %q: %w", l.cfg.Key, err)
	}
	return nil
}

// resource names the election in errors of Kubernetes.
var resource = schema.GroupResource{Group: "etcdclaims", Resource: "claims"}

func (l *Lock) conflict(cause error) error {
	return apierrors.NewConflict(resource, l.cfg.Key, cause)
}
