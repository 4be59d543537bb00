package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/permissions"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const (
	prefix = "/etcdclaims/"
	data   = "/data/"
)

// grants maps prefixes of keys to R, W or RW.
type grants map[string]string

// table returns the rows of the document.
func table(t *testing.T) map[string]grants {
	t.Helper()
	needs, err := permissions.Table("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]grants)
	for feature, row := range needs {
		rows[feature] = make(grants)
		for what, permission := range row {
			key := prefix + what
			if what == permissions.Data {
				key = data
			}
			rows[feature][key] = permission
		}
	}
	maps.Copy(rows[operatorsRow], rows["Queue"])
	return rows
}

// refused collects what etcd refused.
type refused struct {
	mu     sync.Mutex
	calls  []string
	first  context.CancelFunc // called at the first one, or nil
	lost   string             // the key whose next transaction is carried out, and its reply lost
	giveUp context.CancelFunc // of its caller
}

func (r *refused) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	if r.first != nil {
		// Later, because clientv3 3.7.3 never closes if it is closed before it has dealt with
		// the refusal of a watch: addSubstream does not count such a watch among those that
		// the deferred function of watchGRPCStream.run waits for.
		time.AfterFunc(50*time.Millisecond, r.first)
	}
}

// caller returns giveUp for a transaction that puts the key, once.
func (r *refused) caller(req any) (giveUp context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.giveUp == nil {
		return nil
	}
	if text := fmt.Sprint(req); strings.Contains(text, "request_put") && strings.Contains(text, "own/"+r.lost+`"`) {
		giveUp, r.giveUp = r.giveUp, nil
	}
	return giveUp
}

func (r *refused) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err != nil && strings.Contains(err.Error(), "permission denied") {
				r.note(fmt.Sprintf("%s %v", method, req))
			}
			if giveUp := r.caller(req); giveUp != nil && err == nil {
				giveUp()
				return context.Canceled
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			return watching{s, r}, err
		}),
	}
}

// watching is a stream of watches.
type watching struct {
	grpc.ClientStream
	refused *refused
}

func (w watching) RecvMsg(m any) error {
	err := w.ClientStream.RecvMsg(m)
	if resp, ok := m.(*pb.WatchResponse); ok && err == nil && strings.Contains(resp.CancelReason, "permission denied") {
		w.refused.note("a watch")
	}
	return err
}

// granted is one etcd, seen by an administrator and by a user with the row's role.
type granted struct {
	testing.TB
	admin, user *clientv3.Client
	refused     *refused
}

// lost returns the context of a caller that gives up when its transaction with the key was
// carried out, and whose reply is lost.
func (w granted) lost(key string) context.Context {
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	w.refused.mu.Lock()
	defer w.refused.mu.Unlock()
	w.refused.lost, w.refused.giveUp = key, cancel
	return ctx
}

// undone acquires a key for a caller that gives up, and waits until that is undone.
func (w granted) undone(c *etcdclaims.Client) error {
	w.Helper()
	if _, err := c.TryAcquire(w.lost("given up"), "given up"); err == nil {
		return errors.New("acquired, although the caller has given up")
	}
	for w.Context().Err() == nil {
		resp, err := w.admin.Get(w.Context(), prefix+"own/given up")
		if err != nil || len(resp.Kvs) == 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the claim of the caller that gave up is still there")
}

// refusals are calls that come to nothing: their answers must say why.
func (w granted) refusals(c *etcdclaims.Client) error {
	never := clientv3.Compare(clientv3.Version(prefix+"own/never"), ">", 0)
	_, err := c.TryAcquire(w.Context(), "conditional", etcdclaims.If(never))
	if !errors.Is(err, etcdclaims.ErrRefused) {
		return fmt.Errorf("with a condition that does not hold: %w", err)
	}
	return nil
}

func (w granted) claims(etcd *clientv3.Client) *etcdclaims.Client {
	w.Helper()
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			w.Errorf("closing: %v", err)
		}
	})
	return c
}

func (w granted) claim(c *etcdclaims.Client) *etcdclaims.Claim {
	w.Helper()
	claim, err := c.TryAcquire(w.Context(), "k")
	if err != nil {
		w.Fatal(err)
	}
	return claim
}

// wait returns what comes, or an error.
func (w granted) wait(done <-chan error, late string) error {
	select {
	case err := <-done:
		return err
	case <-w.Context().Done():
		return w.Context().Err()
	case <-time.After(20 * time.Second):
		return errors.New(late)
	}
}

// waits acquires a key that is held, and releases it. free frees the key.
func (w granted) waits(c *etcdclaims.Client, free func() error) error {
	return w.inLine(func() error {
		next, err := c.Acquire(w.Context(), "k")
		if err == nil {
			err = next.Release(w.Context())
		}
		return err
	}, free)
}

// inLine calls free when call waits in line, and returns when both are done.
func (w granted) inLine(call, free func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	for w.Context().Err() == nil {
		line, err := w.admin.Get(w.Context(), prefix+"wait/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || line.Count > 0 {
			return errors.Join(err, free(), <-done)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(w.Context().Err(), <-done)
}

// operatorsRow goes with the row of a feature: here it is that of queues.
const operatorsRow = "other calls of operators, and any with admin.As, beside the row of the feature"

// features does what a row is named after.
var features = map[string]func(w granted) error{
	"TryAcquire, Check, Owns, Release, Txn": func(w granted) error {
		c := w.claims(w.user)
		cl := w.claim(c)
		_, err := cl.Owns(w.Context())
		_, txnErr := cl.Txn(w.Context()).Then(clientv3.OpPut(data+"1", "")).Commit()
		return errors.Join(cl.Check(), err, txnErr, w.undone(c), w.refusals(c), cl.Release(w.Context()))
	},
	"Acquire (waiting in line)": func(w granted) error {
		first, second := w.claims(w.user), w.claims(w.user)
		cl := w.claim(first)
		err := w.waits(second, func() error { return cl.Release(w.Context()) })
		w.claim(first)
		return errors.Join(err, w.undone(first), w.waits(second, func() error { // as if its holder died
			_, err := w.admin.Delete(w.Context(), prefix+"own/k")
			return err
		}))
	},
	"Note": func(w granted) error {
		c := w.claims(w.user)
		cl := w.claim(c)
		_, err := cl.Owns(w.Context())
		return errors.Join(err, cl.Note(w.Context(), []byte("half")), w.undone(c), cl.Release(w.Context()))
	},
	"Begin, Complete, Fail, Record": func(w granted) error {
		c := w.claims(w.user)
		for i := range 2 {
			job, err := testwork.Of(c).Begin(w.Context(), fmt.Sprint("work/", i))
			if err != nil {
				return err
			}
			if i == 0 {
				err = job.Complete(w.Context(), clientv3.OpPut(data+"2", ""))
			} else {
				_, err = job.Fail(w.Context(), errors.New("why"))
			}
			if err != nil {
				return err
			}
		}
		held, err := testwork.Of(c).TryBegin(w.Context(), "work/2")
		if err != nil {
			return err
		}
		err = w.inLine(func() error {
			next, err := testwork.Of(w.claims(w.user)).Begin(w.Context(), "work/2")
			if err == nil {
				err = next.Complete(w.Context())
			}
			return err
		}, func() error { return held.Release(w.Context()) })
		if err := errors.Join(err, w.undone(c)); err != nil {
			return err
		}
		_, _, err = testwork.Of(c).Record(w.Context(), "work/0")
		if _, again := testwork.Of(c).TryBegin(w.Context(), "work/0"); !errors.Is(again, work.ErrDone) {
			err = errors.Join(err, fmt.Errorf("done work: %w", again))
		}
		return err
	},
	"Locks": func(w granted) error {
		locks := locks.New(w.claims(w.user))
		_, ok, err := locks.TryAcquire(w.Context(), "k", "me", 10*time.Second)
		_, renewed, renewErr := locks.Renew(w.Context(), "k", "me", 10*time.Second)
		_, _, ownerErr := locks.Owner(w.Context(), "k")
		n, allErr := locks.ReleaseAll(w.Context(), "me")
		if !ok || !renewed || n != 1 {
			err = errors.Join(err, fmt.Errorf("acquired %v, renewed %v, released %d", ok, renewed, n))
		}
		if _, _, lost := locks.TryAcquire(w.lost("lost"), "lost", "me", 10*time.Second); lost == nil {
			err = errors.Join(err, errors.New("locked, although the reply was lost"))
		}
		_, settleErr := locks.Release(w.Context(), "lost", "me")
		return errors.Join(err, renewErr, ownerErr, allErr, settleErr)
	},
	"Supersede": func(w granted) error {
		c := w.claims(w.user)
		w.claim(c)
		_, err := c.TryAcquire(w.Context(), "k", etcdclaims.Supersede())
		return errors.Join(err, w.undone(c))
	},
	"ForceRelease": func(w granted) error {
		c := w.claims(w.user)
		holder := w.claim(c)
		err := admin.ForceRelease(w.Context(), w.claims(w.user), "k", "why")
		select {
		case <-holder.Done():
		case <-w.Context().Done():
		}
		return errors.Join(err, w.undone(c))
	},
	"Suspectable": func(w granted) error {
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		own := clientv3.Compare(clientv3.CreateRevision(prefix+"own/k"), "=", 0)
		lease, err := w.admin.Grant(ctx, 60)
		if err != nil {
			return err
		}
		// As a client that died has left it.
		value := `{"v":1,"claim":"c","owner":"dead","instance":"i","suspectable":true}`
		if _, err := w.admin.Txn(ctx).If(own).Then(clientv3.OpPut(prefix+"own/k", value, clientv3.WithLease(lease.ID))).Commit(); err != nil {
			return err
		}
		c := w.claims(w.user)
		_, err = c.Acquire(ctx, "k", etcdclaims.Suspectable())
		return errors.Join(err, w.undone(c))
	},
	"Resize": func(w granted) error {
		c := w.claims(w.user)
		return errors.Join(admin.Resize(w.Context(), c, "k", 2), admin.Resize(w.Context(), c, "k", 0))
	},
	"Lookup": func(w granted) error {
		w.claim(w.claims(w.admin))
		_, err := w.claims(w.user).Lookup(w.Context(), "k")
		return err
	},
	"claimctl explain, claimctl history": func(w granted) error {
		owner := w.claims(w.admin)
		if err := w.claim(owner).Release(w.Context()); err != nil {
			return err
		}
		nothing := func(context.Context, *work.Work) error { return nil }
		if err := testwork.Of(owner).TryRun(w.Context(), "k", nothing); err != nil {
			return err
		}
		w.claim(owner)
		c := w.claims(w.user)
		x, err := explain.Reader{Claims: c, Works: testwork.Of(c), Sharers: 10, Line: 10, Terms: 10}.Key(w.Context(), "k")
		if err == nil && (x.Renewal == nil || x.Record == nil || len(x.History.Terms) != 3) {
			err = fmt.Errorf("%+v", x)
		}
		return errors.Join(err, x.Unread)
	},
	"List, Watch": func(w granted) error {
		w.claim(w.claims(w.admin))
		c := w.claims(w.user)
		for _, err := range c.List(w.Context(), "") {
			if err != nil {
				return err
			}
		}
		for _, err := range admin.Lines(w.Context(), c, []string{"k"}) {
			if err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(w.Context(), 6*time.Second) // with a comparison, every third of the TTL
		defer cancel()
		time.AfterFunc(200*time.Millisecond, func() { _, _ = w.admin.Delete(ctx, prefix+"own/k") })
		events := 0
		for _, err := range c.Watch(ctx, "") {
			if err != nil && ctx.Err() == nil {
				return err
			}
			events++
		}
		if events == 0 {
			return errors.New("no event")
		}
		return nil
	},
	"Groups": func(w granted) error {
		handled := make(chan error, 10)
		join := func(name string) (*group.Member, error) {
			cfg := group.Config{Group: "g", Partitions: 2, Name: name, Away: time.Minute, Cooldown: -1}
			return group.Join(w.Context(), w.claims(w.user), cfg, func(ctx context.Context, _ int, claim *etcdclaims.Claim) error {
				_, err := claim.Txn(ctx).Then(clientv3.OpPut(data+"6", "")).Commit()
				handled <- err
				<-ctx.Done()
				return nil
			})
		}
		first, err := join("one")
		for n := 0; n < 2 && err == nil; n++ {
			err = w.wait(handled, "no slot was handled")
		}
		if err != nil {
			return err
		}
		second, err := join("two") // to which a slot is handed over
		if err != nil {
			return err
		}
		return errors.Join(w.wait(handled, "no slot was handed over"),
			second.Leave(w.Context()), first.Leave(w.Context()), w.undone(w.claims(w.user)))
	},
	"Scheduler": func(w granted) error {
		s, err := sched.New(w.claims(w.user), sched.Config{Group: "g"})
		if err != nil {
			return err
		}
		ran := make(chan struct{}, 10)
		err = s.Add(sched.Job{Name: "j", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Handler: func(context.Context, sched.Tick) error {
			ran <- struct{}{}
			return nil
		}})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		select {
		case <-ran:
		case err := <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
			return errors.New("no tick ran")
		}
		_, err = s.Inspect(ctx, "j")
		standby, standbyErr := sched.New(w.claims(w.user), sched.Config{Group: "g"})
		if standbyErr != nil {
			return standbyErr
		}
		rest, stop := context.WithCancel(ctx)
		defer stop()
		err = errors.Join(err, w.inLine(func() error {
			_ = standby.Run(rest)
			return nil
		}, func() error { stop(); return nil }), w.undone(w.claims(w.user)))
		time.Sleep(1500 * time.Millisecond) // until the run is recorded
		cancel()
		if stopped := <-ended; !errors.Is(stopped, context.Canceled) {
			err = errors.Join(err, stopped)
		}
		return err
	},
	"Queue": func(w granted) error {
		c := w.claims(w.user)
		q, err := queue.New(c, queue.Config{Name: "q", MaxTaken: 2})
		if err != nil {
			return err
		}
		for i := range 2 {
			if _, err = q.Enqueue(w.Context(), queue.NewItem([]byte("payload"), queue.ID(fmt.Sprint(i)))); err != nil {
				return err
			}
		}
		got, err := q.Claim(w.Context(), 2)
		if err != nil || len(got.Deliveries) != 2 {
			return errors.Join(err, fmt.Errorf("%d leases", len(got.Deliveries)))
		}
		_, heartErr := got.Deliveries[0].Heartbeat(w.Context(), 20*time.Second)
		_, failErr := got.Deliveries[1].Fail(w.Context(), errors.New("why"))
		_, statsErr := q.Stats(w.Context())
		for _, err := range queue.Active(w.Context(), c) {
			statsErr = errors.Join(statsErr, err)
		}
		return errors.Join(heartErr, failErr, statsErr, w.undone(c),
			got.Deliveries[0].Complete(w.Context(), clientv3.OpPut(data+"5", "")), q.Close(w.Context()))
	},
	"etcdguard.NewKV with a claim": func(w granted) error {
		c := w.claims(w.user)
		cl := w.claim(c)
		_, err := etcdguard.NewKV(w.user, cl).Put(w.Context(), data+"3", "")
		return errors.Join(err, w.undone(c), cl.Release(w.Context()))
	},
	"etcdguard.Bearer, etcdguard.NewGate": func(w granted) error {
		cl := w.claim(w.claims(w.admin))
		_, err := etcdguard.NewKV(w.user, etcdguard.Bearer(prefix, cl.Token())).Put(w.Context(), data+"4", "")
		return errors.Join(err, etcdguard.NewGate(w.user, prefix).Admit(w.Context(), cl.Token()))
	},
	"RaiseEpoch": func(w granted) error {
		_, err := admin.RaiseEpoch(w.Context(), w.user, prefix, 0)
		return err
	},
}

func init() { // it is among the features that it uses
	features[operatorsRow] = func(w granted) error {
		c := w.claims(w.user)
		q, err := queue.New(c, queue.Config{Name: "operated"})
		if err != nil {
			return err
		}
		_, listErr := admin.Actions(w.Context(), c, 1, time.Time{})
		return errors.Join(q.Pause(w.Context(), "why"), q.Resume(w.Context()), listErr, q.Close(w.Context()), features["Queue"](w))
	}
}

func TestEachRowSuffices(t *testing.T) {
	rows := table(t)
	for feature := range rows {
		if features[feature] == nil {
			t.Errorf("row %q is not tested", feature)
		}
	}
	for feature, use := range features {
		row, ok := rows[feature]
		if !ok {
			t.Errorf("there is no row %q", feature)
			continue
		}
		t.Run(feature, func(t *testing.T) {
			t.Parallel()
			server := testetcd.Start(t, testetcd.NoSync())
			var denied refused
			withRole(t, server.Client(t), row)
			w := granted{
				t, server.ClientWith(t, clientv3.Config{Username: "root", Password: "root"}),
				server.ClientWith(t, clientv3.Config{Username: "user", Password: "user", DialOptions: denied.options()}),
				&denied,
			}
			// Cleanups run in reverse: this one after the clients are closed.
			t.Cleanup(func() {
				for _, call := range denied.calls {
					t.Errorf("refused: %.300s", call)
				}
			})
			if err := use(w); err != nil {
				t.Error(err)
			}
		})
	}
}

// withRole turns authentication on, with a user that has what the row grants.
func withRole(t *testing.T, etcd *clientv3.Client, row grants) {
	t.Helper()
	ctx := t.Context()
	for _, user := range []string{"root", "user"} {
		_, roleErr := etcd.RoleAdd(ctx, user)
		_, userErr := etcd.UserAdd(ctx, user, user)
		_, err := etcd.UserGrantRole(ctx, user, user)
		if err := errors.Join(roleErr, userErr, err); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, etcd, row)
	if _, err := etcd.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}

// grant gives the user's role what the row grants.
func grant(t *testing.T, etcd *clientv3.Client, row grants) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[string]clientv3.PermissionType{
		"R": clientv3.PermissionType(clientv3.PermRead), "W": clientv3.PermissionType(clientv3.PermWrite), "RW": clientv3.PermissionType(clientv3.PermReadWrite),
	}
	for key, kind := range row {
		end := ""
		if strings.HasSuffix(key, "/") {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		permission, ok := kinds[kind]
		if !ok {
			t.Fatalf("%s has the permission %q", key, kind)
		}
		must(etcd.RoleGrantPermission(ctx, "user", key, end, permission))
	}
}
