package claimtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// callTimeout bounds each of the test's own calls.
const callTimeout = 30 * time.Second

// userName is the user of all clients under Auth, and also its password.
const userName = "claimtest"

const rootName = "root"

// operator changes etcd as administrators and other programs do, without the knowledge
// of its clients. Its methods are those of Server and Members.
type operator struct {
	root *clientv3.Client
	auth bool
}

func newOperator(tb testing.TB, b *backend, auth bool) *operator {
	tb.Helper()
	o := &operator{root: b.admin(tb), auth: auth}
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

// redial is how often a client without faults tries to connect to a server that is
// stopped: what watches by it sees a change as soon as it happens, also after a restart.
var redial = grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond,
}})

// admin returns a new client of a user with all permissions.
func (b backend) admin(tb testing.TB) *clientv3.Client {
	tb.Helper()
	h := newHost(tb, b)
	cfg := clientv3.Config{DialOptions: append(h.dialOptions(), redial)}
	if b.secured {
		cfg.Username, cfg.Password = rootName, rootName
	}
	return b.connect(tb, cfg)
}

// do makes calls and ends the test if they fail.
func (o *operator) do(tb testing.TB, what string, f func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		tb.Fatalf("claimtest: %s: %v", what, err)
	}
}

// retry repeats an attempt until it succeeds. It ends the test after callTimeout.
func (o *operator) retry(tb testing.TB, what string, attempt func(ctx context.Context) (done bool, err error)) {
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

// Admin returns a client without faults, of a user with all permissions. The
// package uses it too: do not close it.
func (o *operator) Admin() *clientv3.Client { return o.root }

// Lease returns the lease of a key in etcd, such as Client.OwnKey of a claimed key. It returns 0 if the key does not exist
// or has no lease.
func (o *operator) Lease(tb testing.TB, etcdKey string) clientv3.LeaseID {
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

// Revoke revokes the lease of a key in etcd, such as Client.OwnKey of a claimed key. That deletes all keys on that lease.
// It ends the test if the key has no lease.
func (o *operator) Revoke(tb testing.TB, etcdKey string) {
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
func (o *operator) Delete(tb testing.TB, etcdKey string) {
	tb.Helper()
	o.do(tb, "deleting "+etcdKey, func(ctx context.Context) error {
		_, err := o.root.Delete(ctx, etcdKey)
		return err
	})
}

// Overwrite puts a key in etcd without a lease.
func (o *operator) Overwrite(tb testing.TB, etcdKey, value string) {
	tb.Helper()
	o.do(tb, "overwriting "+etcdKey, func(ctx context.Context) error {
		_, err := o.root.Put(ctx, etcdKey, value)
		return err
	})
}

// Compact compacts all revisions up to now. Watches that resume at an earlier
// revision receive an error.
func (o *operator) Compact(tb testing.TB) {
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

// FillQuota makes etcd behave as if its backend had exceeded its quota, by raising
// the alarm for that: requests that may increase its size are refused.
func (o *operator) FillQuota(tb testing.TB) {
	tb.Helper()
	o.alarm(tb, pb.AlarmRequest_ACTIVATE)
}

// FreeQuota ends the effect of FillQuota.
func (o *operator) FreeQuota(tb testing.TB) {
	tb.Helper()
	o.alarm(tb, pb.AlarmRequest_DEACTIVATE)
}

func (o *operator) alarm(tb testing.TB, action pb.AlarmRequest_AlarmAction) {
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

// ExpireTokens ends the logins of all clients under [Auth]. Clients log in again
// when a request is refused. It ends the test without Auth.
func (o *operator) ExpireTokens(tb testing.TB) {
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

// RaiseEpoch does what an operator does after a restore that rewound revisions, by
// [admin.RaiseEpoch]. Every later fence of clients with this Config.Prefix is
// greater than all before, and every earlier claim is over.
func (o *operator) RaiseEpoch(tb testing.TB, prefix string) {
	tb.Helper()
	o.do(tb, "raising the epoch", func(ctx context.Context) error {
		_, err := admin.RaiseEpoch(ctx, o.root, prefix, 0)
		return err
	})
}
