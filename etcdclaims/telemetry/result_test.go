package telemetry

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a proxy or a member that cannot serve yet refuses is unavailable, not a permission that is missing.
func TestErrorTypeIsThatOfTheTableOfRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{status.Error(codes.PermissionDenied, "unexpected HTTP status code received from server: 403 (Forbidden)"), "unavailable"},
		{status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"), "unavailable"},
		{rpctypes.ErrGRPCNotSupportedForLearner, "unavailable"},
		{rpctypes.ErrNoLeader, "unavailable"},
		{rpctypes.ErrGRPCInvalidAuthToken, "unavailable"},
		{rpctypes.ErrPermissionDenied, "permission_denied"},
		{fmt.Errorf("a prefix: %w", status.Error(codes.PermissionDenied, "RBAC: access denied")), "permission_denied"},
		{rpctypes.ErrGRPCTooManyOps, "_OTHER"},
	} {
		if got := errorTypeOf(tt.err); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}
