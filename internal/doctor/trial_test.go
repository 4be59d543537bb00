package doctor

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Where renewals are refused or their streams break, claims can be made and are lost at their
// first deadline: a proxy can do that.
func TestTrialRenews(t *testing.T) {
	for name, tt := range map[string]struct {
		fault claimtest.Fault
		text  string // empty: all is well
	}{
		"well":          {},
		"refused twice": {fault: claimtest.Fault{On: claimtest.KeepAlive, Times: 2, Code: codes.Unavailable}},
		"refused":       {claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Err: rpctypes.ErrGRPCUserEmpty}, "user name is empty"},
		"denied":        {claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied}, "permission denied"},
		"streams refused": {claimtest.Fault{
			On: claimtest.KeepAlive, Times: -1,
			Err: status.Error(codes.Unimplemented, "unknown method LeaseKeepAlive"),
		}, "unknown method"},
		"streams break": {claimtest.Fault{
			On: claimtest.KeepAlive, Times: -1, LoseReply: true,
			Code: codes.Unavailable,
		}, "injected by a test"},
		"streams are silent": {claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseReply: true}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, host := examineVirtually(t)
				if tt.fault.Times != 0 {
					host.Inject(tt.fault)
				}
				e.Try(t.Context())
				e.has(t, OK, "write", "a lease and a claim took")
				if tt.text == "" {
					e.has(t, OK, "renewal", "a renewal took")
					return
				}
				e.has(t, Error, "renewal", "a lease cannot be renewed, so that each claim is lost at its first deadline: ")
				// The last try can be cut off by the end of the trial.
				if !slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Check == "renewal" && strings.Contains(f.Detail, "deadline exceeded") }) {
					e.has(t, Error, "renewal", tt.text)
				}
				kv, err := e.etcd().Get(t.Context(), e.Claims.Prefix()+"own/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || kv.Count != 0 {
					t.Errorf("the trial left %+v, %v", kv, err)
				}
			})
		})
	}
}

// Whoever uses only features that read need not be able to claim a key.
func TestTrialForReadersWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, host := examineVirtually(t)
		host.Inject(claimtest.Fault{On: claimtest.Grant, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		e.Features = []string{"explain", "list"}
		e.Try(t.Context())
		e.has(t, OK, "permissions", "suffice under "+e.Claims.Prefix()+" for explain, list")
		if len(e.Findings) != 1 {
			t.Errorf("%+v", e.Findings)
		}
	})
}
