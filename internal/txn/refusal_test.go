package txn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/refusals"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each error of etcd has the verdict that is known of it, with the code that its newest
// version gives and with the code that etcd 3.5 gives. Errors that a new version of etcd adds
// must be looked at.
func TestVerdictOfEachErrorOfEtcd(t *testing.T) {
	t.Parallel()
	named := map[string]Verdict{}
	for verdict, names := range map[Verdict]string{
		NotSent: "NoLeader NotLeader NotSupportedForLearner NotCapable RequestTooManyRequests AuthOldRevision InvalidAuthToken",
		Passing: "LeaderChanged Stopped Timeout TimeoutDueToLeaderFail TimeoutDueToConnectionLost TimeoutWaitAppliedIndex Unhealthy Corrupt " +
			"WatchCanceled Canceled DeadlineExceeded",
		Lasting: "NoSpace",
		Final: "EmptyKey KeyNotFound ValueProvided LeaseProvided TooManyOps DuplicateKey InvalidClientAPIVersion InvalidSortOption Compacted FutureRev " +
			"LeaseNotFound LeaseExist LeaseTTLTooLarge MemberExist PeerURLExist MemberNotEnoughStarted MemberBadURLs MemberNotFound MemberNotLearner " +
			"LearnerNotReady TooManyLearners ClusterIDMismatch ClusterIdMismatch RequestTooLarge RootUserNotExist RootRoleNotExist UserAlreadyExist UserEmpty " +
			"UserNotFound RoleAlreadyExist RoleNotFound RoleEmpty AuthFailed PermissionNotGiven PermissionDenied RoleNotGranted PermissionNotGranted " +
			"AuthNotEnabled InvalidAuthMgmt BadLeaderTransferee WrongDowngradeVersionFormat InvalidDowngradeTargetVersion ClusterVersionUnavailable " +
			"DowngradeInProcess NoInflightDowngrade",
	} {
		for _, name := range strings.Fields(names) {
			named[name] = verdict
		}
	}
	all, err := refusals.OfEtcd()
	if err != nil {
		t.Fatal(err)
	}
	for name, ofServer := range all {
		want, ok := named[name]
		if !ok {
			t.Errorf("%s is not in this test", name)
		}
		for _, err := range []error{ofServer, clientv3.ContextError(t.Context(), ofServer), fmt.Errorf("a prefix: %w", ofServer)} {
			if got := Judge(err); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
	}
	for text, want := range map[string]Verdict{"rpc not supported for learner": NotSent, "not capable": NotSent} {
		if got := Judge(status.Error(codes.Unavailable, "etcdserver: "+text)); got != want {
			t.Errorf("%s, of etcd 3.5: %d, want %d", text, got, want)
		}
	}
}

func TestVerdictOfOtherErrors(t *testing.T) {
	t.Parallel()
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if _, ok := byCode[code]; !ok {
			t.Errorf("%v has no verdict", code)
		}
	}
	proxy := func(code codes.Code, http string) error {
		return status.Error(code, "unexpected HTTP status code received from server: "+http)
	}
	for _, tt := range []struct {
		err  error
		want Verdict
	}{
		{ErrNotSent, NotSent},
		{fmt.Errorf("%w: %w", ErrNotSent, context.DeadlineExceeded), NotSent},
		{status.Error(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: connection refused\""), NotSent},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), Passing},
		{proxy(codes.PermissionDenied, "403 (Forbidden)"), Passing}, // what is behind the proxy is not known
		{proxy(codes.Unauthenticated, "401 (Unauthorized)"), Passing},
		{proxy(codes.Unimplemented, "404 (Not Found)"), Passing},
		{proxy(codes.Unavailable, "502 (Bad Gateway)"), Passing},
		{fmt.Errorf("a prefix: %w", proxy(codes.PermissionDenied, "403 (Forbidden)")), Passing},
		{status.Error(codes.PermissionDenied, "RBAC: access denied"), Final},
		{status.Error(codes.ResourceExhausted, "rate limit exceeded"), Passing},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"), Lasting},
		{status.Error(codes.Canceled, "grpc: the client connection is closing"), Lasting},
		{status.Error(codes.Canceled, "context canceled"), Passing},
		{ErrNoAnswer, Passing},
		{context.DeadlineExceeded, Passing},
		{context.Canceled, Lasting},
		{errors.New("an error of this process"), Lasting},
		{fmt.Errorf("%w: %w", rpctypes.ErrRequestTooLarge,
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)")), Final},
	} {
		if got := Judge(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}
