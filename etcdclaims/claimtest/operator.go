package claimtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// callTimeout is for what a test does itself.
const callTimeout = 30 * time.Second

// userName is the user of clients under Auth, and its password.
const userName = "claimtest"

const rootName = "root"

// An Operator does to etcd what people and other programs do, behind the backs
// of its clients. Its methods are for the test's own goroutine.
type Operator struct {
	root *clientv3.Client
	auth bool
}

func newOperator(tb testing.TB, b *backend, auth bool) *Operator {
	tb.Helper()
	o := &Operator{root: b.admin(tb), auth: auth}
	if !auth {
		return o
	}
	o.do(tb, "turning authentication on", func(ctx context.Context) error {
		everything := "\x00"
		_, err := o.root.RoleAdd(ctx, userName)
		_, err1 := o.root.RoleGrantPermission(ctx, userName, everything, everything, clientv3.PermissionType(clientv3.PermReadWrite))
		_, err2 := o.root.UserAdd(ctx, userName, userName)
		_, err3 := o.root.UserGrantRole(ctx, userName, userName)
		_, err4 := o.root.RoleAdd(ctx, rootName)
		_, err5 := o.root.UserAdd(ctx, rootName, rootName)
		_, err6 := o.root.UserGrantRole(ctx, rootName, rootName)
		_, err7 := o.root.AuthEnable(ctx)
		return errors.Join(err, err1, err2, err3, err4, err5, err6, err7)
	})
	b.secured = true
	o.root = b.admin(tb)
	return o
}

// admin returns a new client of one who may do everything.
func (b backend) admin(tb testing.TB) *clientv3.Client {
	tb.Helper()
	h := newHost(tb, b)
	if !b.secured {
		return h.Etcd(tb)
	}
	return b.connect(tb, clientv3.Config{
		Username: rootName, Password: rootName, DialOptions: h.dialOptions(),
	})
}

// do makes calls that must succeed.
func (o *Operator) do(tb testing.TB, what string, f func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		tb.Fatalf("claimtest: %s: %v", what, err)
	}
}

// retry makes an attempt again until it succeeds, as it must in time.
func (o *Operator) retry(tb testing.TB, what string, attempt func(ctx context.Context) (done bool, err error)) {
	tb.Helper()
	o.do(tb, what, func(ctx context.Context) error {
		for {
			done, err := attempt(ctx)
			if done {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// Admin returns a client that nothing happens to, of a user who may do
// everything, and that the kit itself uses: do not close it.
func (o *Operator) Admin() *clientv3.Client { return o.root }

// Key returns the key in etcd of the claim on key, for clients with the given
// Config.Prefix ("" for the default).
func Key(prefix, key string) string { return place(prefix) + "own/" + key }

func place(prefix string) string {
	if prefix == "" {
		return etcdclaims.DefaultPrefix
	}
	return prefix
}

// Lease returns the lease that a key in etcd is on, 0 if there is no such key or
// it is on none.
func (o *Operator) Lease(tb testing.TB, etcdKey string) clientv3.LeaseID {
	tb.Helper()
	var id clientv3.LeaseID
	o.do(tb, "reading "+etcdKey, func(ctx context.Context) error {
		resp, err := o.root.Get(ctx, etcdKey)
		if err == nil && len(resp.Kvs) > 0 {
			id = clientv3.LeaseID(resp.Kvs[0].Lease)
		}
		return err
	})
	return id
}

// Revoke revokes the lease that a key in etcd is on, and with it deletes all
// that is on it.
func (o *Operator) Revoke(tb testing.TB, etcdKey string) {
	tb.Helper()
	id := o.Lease(tb, etcdKey)
	if id == 0 {
		tb.Fatalf("claimtest: revoking the lease of %s: there is none", etcdKey)
	}
	o.do(tb, "revoking the lease of "+etcdKey, func(ctx context.Context) error {
		_, err := o.root.Revoke(ctx, id)
		return err
	})
}

// Delete deletes a key in etcd.
func (o *Operator) Delete(tb testing.TB, etcdKey string) {
	tb.Helper()
	o.do(tb, "deleting "+etcdKey, func(ctx context.Context) error {
		_, err := o.root.Delete(ctx, etcdKey)
		return err
	})
}

// Overwrite puts a key in etcd, which takes it off its lease.
func (o *Operator) Overwrite(tb testing.TB, etcdKey, value string) {
	tb.Helper()
	o.do(tb, "overwriting "+etcdKey, func(ctx context.Context) error {
		_, err := o.root.Put(ctx, etcdKey, value)
		return err
	})
}

// Compact compacts everything up to now: watches that resume in the past are
// told that it is gone.
func (o *Operator) Compact(tb testing.TB) {
	tb.Helper()
	o.do(tb, "compacting", func(ctx context.Context) error {
		resp, err := o.root.Get(ctx, "/", clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if _, err = o.root.Compact(ctx, resp.Header.Revision); errors.Is(err, rpctypes.ErrCompacted) {
			return nil // nothing has happened since the last time
		}
		return err
	})
}

// FillQuota makes etcd behave as it does beyond the quota of its backend, by
// raising the alarm that it raises then: what may grow it is refused.
func (o *Operator) FillQuota(tb testing.TB) {
	tb.Helper()
	o.alarm(tb, pb.AlarmRequest_ACTIVATE)
}

// FreeQuota ends what FillQuota began.
func (o *Operator) FreeQuota(tb testing.TB) {
	tb.Helper()
	o.alarm(tb, pb.AlarmRequest_DEACTIVATE)
}

func (o *Operator) alarm(tb testing.TB, action pb.AlarmRequest_AlarmAction) {
	tb.Helper()
	o.do(tb, "setting the alarm", func(ctx context.Context) error {
		maintenance := pb.NewMaintenanceClient(o.root.ActiveConnection())
		status, err := maintenance.Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		_, err = maintenance.Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE, MemberID: status.Header.MemberId})
		return err
	})
}

// ExpireTokens ends the logins of all clients, under [Auth]. They log in anew
// when they are refused.
func (o *Operator) ExpireTokens(tb testing.TB) {
	tb.Helper()
	if !o.auth {
		tb.Fatal("claimtest: expiring tokens: start the server with Auth")
	}
	o.do(tb, "expiring tokens", func(ctx context.Context) error {
		if _, err := o.root.AuthDisable(ctx); err != nil {
			return err
		}
		_, err := o.root.AuthEnable(ctx)
		return err
	})
}

// RaiseEpoch does what an operator does after a restore that rewound revisions:
// every later fence of clients with the given Config.Prefix is greater than any
// before, and every claim from before is over.
func (o *Operator) RaiseEpoch(tb testing.TB, prefix string) {
	tb.Helper()
	o.do(tb, "raising the epoch", func(ctx context.Context) error {
		_, err := etcdclaims.RaiseEpoch(ctx, o.root, prefix, 0)
		return err
	})
}
