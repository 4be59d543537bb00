package testterms

import (
	"strings"

	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// step names what a transaction is to an attempt, "" for the first of a session.
func step(in *pb.TxnRequest) string {
	l := testlayers.Layout
	var nested []string
	what := ""
	for _, op := range in.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			nested = append(nested, step(inner))
		}
		put, del := string(op.GetRequestPut().GetKey()), string(op.GetRequestDeleteRange().GetKey())
		switch {
		case strings.HasPrefix(put, l.Own("")):
			what = "take"
		case strings.HasPrefix(del, l.Lines()) && what == "take":
			what = "advance"
		case strings.HasPrefix(put, l.Sessions()):
			return ""
		case strings.HasPrefix(del, l.Own("")) && what == "":
			what = "delete"
		case strings.HasPrefix(del, l.Lines()) && what == "":
			what = "leave"
		case op.GetRequestRange() != nil && what == "":
			what = "read"
		}
	}
	for _, op := range in.Failure {
		if put := string(op.GetRequestPut().GetKey()); strings.HasPrefix(put, l.Void("")) {
			what += " or void"
		} else if strings.HasPrefix(put, l.Lines()) {
			what = "join"
		}
	}
	if what == "" {
		return strings.Join(nested, " & ")
	}
	return what
}
