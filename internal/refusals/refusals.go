// Package refusals has the errors by which etcd, its members of any version, and proxies
// before it refuse a request. Its tests run every loop of the module through all of them.
package refusals

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var declared = regexp.MustCompile(`ErrGRPC(\w+)\s*= status.Error\(codes\.(\w+), "(.*)"\)`)

// OfEtcd returns the errors of etcd's API, by their names without "ErrGRPC". It reads
// the source of rpctypes, so an error that a new version adds is among them.
func OfEtcd() (map[string]error, error) {
	all, err := ofEtcd()
	return maps.Clone(all), err
}

// ofEtcd runs a program, which takes longer than most tests that ask.
var ofEtcd = sync.OnceValues(func() (map[string]error, error) {
	source, err := exec.Command("go", "doc", "-short", "-src", "go.etcd.io/etcd/api/v3/v3rpc/rpctypes.ErrGRPCEmptyKey").Output()
	if err != nil {
		return nil, fmt.Errorf("go doc: %w", err)
	}
	byName := map[string]codes.Code{}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		byName[code.String()] = code
	}
	all := map[string]error{}
	for _, f := range declared.FindAllStringSubmatch(string(source), -1) {
		code, ok := byName[f[2]]
		if !ok {
			return nil, fmt.Errorf("code %s of %s is not known", f[2], f[1])
		}
		all[f[1]] = status.Error(code, f[3])
	}
	if len(all) < 50 {
		return nil, errors.New("the errors of etcd are not found in the source of rpctypes")
	}
	return all, nil
})

// Others returns refusals that rpctypes does not have: every code, what members of etcd 3.5
// answer, and what gRPC makes of a broken connection or of the HTTP status of a proxy.
func Others() map[string]error {
	all := map[string]error{
		"learner of etcd 3.5":      status.Error(codes.Unavailable, "etcdserver: rpc not supported for learner"),
		"not capable, of etcd 3.5": status.Error(codes.Unavailable, "etcdserver: not capable"),
		"proposal dropped":         status.Error(codes.Unknown, "raft proposal dropped"),
		"connection refused": status.Error(codes.Unavailable,
			`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`),
		"connection broken":         status.Error(codes.Unavailable, "error reading from server: EOF"),
		"stream reset":              status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
		"rate limit of a proxy":     status.Error(codes.ResourceExhausted, "rate limit exceeded"),
		"no endpoint behind a mesh": status.Error(codes.Unavailable, "no healthy upstream"),
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all["code "+code.String()] = status.Error(code, "a text that etcd does not use")
	}
	for text, code := range map[string]codes.Code{ // as gRPC turns a status into a code
		"401 (Unauthorized)": codes.Unauthenticated, "403 (Forbidden)": codes.PermissionDenied, "404 (Not Found)": codes.Unimplemented,
		"429 (Too Many Requests)": codes.Unavailable, "500 (Internal Server Error)": codes.Unknown, "502 (Bad Gateway)": codes.Unavailable,
		"503 (Service Unavailable)": codes.Unavailable, "504 (Gateway Timeout)": codes.Unavailable,
	} {
		number, _, _ := strings.Cut(text, " ")
		all["HTTP "+number] = status.Error(code,
			"unexpected HTTP status code received from server: "+text+`; transport: received unexpected content-type "text/html"`)
	}
	return all
}
