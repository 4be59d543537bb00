package testetcd

import (
	"errors"
	"reflect"
	"unsafe"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// halts reports whether an error ends a watch rather than to have its stream
// reopened, by clientv3's rules.
func halts(err error) bool {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
		return true // asked for by clientv3.WithRequireLeader
	}
	code := status.Code(err)
	return code != codes.Unavailable && code != codes.Internal
}

// failed is the last response of a watch that ended with an error.
func failed(err error) clientv3.WatchResponse {
	wr := clientv3.WatchResponse{Header: &pb.ResponseHeader{}, Canceled: true}
	if !setCloseErr(&wr, err) {
		// The reason is looked up among etcd's errors, so it is the same for these.
		wr.CancelReason = rpctypes.ErrorDesc(err)
	}
	return wr
}

// setCloseErr sets what wr.Err returns, for which clientv3 has no setter.
func setCloseErr(wr *clientv3.WatchResponse, err error) bool {
	field := reflect.ValueOf(wr).Elem().FieldByName("closeErr")
	if !field.IsValid() || field.Type() != reflect.TypeFor[error]() {
		return false
	}
	*(*error)(unsafe.Pointer(field.UnsafeAddr())) = err
	return true
}
