package claimtest

import (
	"encoding/json"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Kind says what a request to etcd is for. A transaction that carries several
// requests, as clients send it under load, is of several kinds. A request of
// which no constant speaks has the name of etcd's method, in lower case: "put",
// "deleterange", "authenticate".
type Kind string

// Kinds of requests.
const (
	Every Kind = "" // whatever it is for

	Acquire  Kind = "acquire"  // takes a free key
	Enqueue  Kind = "enqueue"  // takes a free key, or a place in line
	Advance  Kind = "advance"  // takes a key from a place in line
	Resolve  Kind = "resolve"  // looks what became of an acquisition whose reply was lost
	Undo     Kind = "undo"     // takes back an acquisition that was given up
	Note     Kind = "note"     // Claim.Note
	Release  Kind = "release"  // frees a key that nobody waits for
	HandOver Kind = "handover" // gives a key to the first in line
	Pass     Kind = "pass"     // gives a key to another caller of the same client
	Ending   Kind = "ending"   // Work.Complete, Fail, Release
	Rehome   Kind = "rehome"   // moves the key of a zombie, or for MinHold, to a lease of its own
	Leave    Kind = "leave"    // leaves the line
	Mail     Kind = "mail"     // tells a holder of a forced release
	Unmail   Kind = "unmail"   // removes such a notice, or word of a hand-over

	Grant      Kind = "grant"     // of a lease
	Sentinel   Kind = "sentinel"  // opens a session
	KeepAlive  Kind = "keepalive" // renews a lease
	Verify     Kind = "verify"    // reads whether claims are still owned; other reads at one revision, too
	Revoke     Kind = "revoke"    // of a lease
	TimeToLive Kind = "ttl"       // of a lease

	Range  Kind = "range" // a plain read
	Watch  Kind = "watch"
	Status Kind = "status" // asks a server for its version
	Other  Kind = "other"  // a transaction of the user's, mostly
)

// kindsOf tells a request's kinds from what it does.
func kindsOf(method string, req any) []Kind {
	switch name := method[strings.LastIndex(method, "/")+1:]; name {
	case "LeaseGrant":
		return []Kind{Grant}
	case "LeaseRevoke":
		return []Kind{Revoke}
	case "LeaseTimeToLive":
		return []Kind{TimeToLive}
	case "LeaseKeepAlive":
		return []Kind{KeepAlive}
	case "Txn":
		return txnKinds(req.(*pb.TxnRequest))
	default:
		return []Kind{Kind(strings.ToLower(name))}
	}
}

// put is one key written by a transaction.
type put struct{ key, value string }

// changes are what the branches of a transaction do.
type changes struct {
	puts    []put
	deleted []string
	nested  []*pb.TxnRequest
	failed  []string // puts of the other branch
}

func changesOf(req *pb.TxnRequest) changes {
	var c changes
	for _, op := range req.Success {
		switch {
		case op.GetRequestPut() != nil:
			p := op.GetRequestPut()
			c.puts = append(c.puts, put{string(p.Key), string(p.Value)})
		case op.GetRequestDeleteRange() != nil:
			c.deleted = append(c.deleted, string(op.GetRequestDeleteRange().Key))
		case op.GetRequestTxn() != nil:
			c.nested = append(c.nested, op.GetRequestTxn())
		}
	}
	for _, op := range req.Failure {
		if p := op.GetRequestPut(); p != nil {
			c.failed = append(c.failed, string(p.Key))
		}
	}
	return c
}

func (c changes) put(part string) *put {
	for i := range c.puts {
		if strings.Contains(c.puts[i].key, part) {
			return &c.puts[i]
		}
	}
	return nil
}

func (c changes) deletes(part string) bool { return has(c.deleted, part) }

func (c changes) otherwisePuts(part string) bool { return has(c.failed, part) }

func has(keys []string, part string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, part) })
}

// ends reports whether a record of work is written for a claim that is deleted.
func (c changes) ends() bool {
	for _, own := range c.deleted {
		prefix, key, found := strings.Cut(own, "/own/")
		if !found {
			continue
		}
		record := strings.Join([]string{prefix, "work", key}, "/")
		if slices.Contains(c.deleted, record) || slices.ContainsFunc(c.puts, func(p put) bool { return p.key == record }) {
			return true
		}
	}
	return false
}

func txnKinds(req *pb.TxnRequest) []Kind {
	c := changesOf(req)
	switch own := c.put("/own/"); {
	case len(c.nested) > 0 && len(c.nested)+c.voids() == len(req.Success):
		var kinds []Kind
		for _, n := range c.nested {
			for _, k := range txnKinds(n) {
				if !slices.Contains(kinds, k) {
					kinds = append(kinds, k)
				}
			}
		}
		return kinds
	case looksForItself(req) && c.deletes("/own/"):
		return []Kind{Undo}
	case looksForItself(req):
		return []Kind{Resolve}
	case c.otherwisePuts("/wait/"):
		return []Kind{Enqueue}
	case c.put("/live/") != nil:
		return []Kind{Sentinel}
	case own != nil && c.put("/won/") != nil:
		return []Kind{HandOver}
	case own != nil:
		return []Kind{takeKind(req, own)}
	case c.put("/evict/") != nil:
		return []Kind{Mail}
	case c.ends():
		return []Kind{Ending}
	case c.deletes("/own/"):
		return []Kind{Release}
	case c.put("/note/") != nil:
		return []Kind{Note}
	case c.deletes("/wait/"):
		return []Kind{Leave}
	case c.deletes("/evict/"), c.deletes("/won/"):
		return []Kind{Unmail}
	case len(c.puts)+len(c.deleted) == 0 && asksForOwners(req):
		return []Kind{Verify}
	}
	return []Kind{Other}
}

// looksForItself reports whether a request asks whether a claim is there by its
// value.
func looksForItself(req *pb.TxnRequest) bool {
	return slices.ContainsFunc(req.Compare, func(c *pb.Compare) bool {
		return c.Target == pb.Compare_VALUE && strings.Contains(string(c.Key), "/own/")
	})
}

// voids counts what requests that share a transaction make void.
func (c changes) voids() (n int) {
	for _, p := range c.puts {
		if strings.Contains(p.key, "/void/") {
			n++
		}
	}
	return n
}

// asksForOwners reports whether the conditions of a request, if it has any, are of
// claims alone.
func asksForOwners(req *pb.TxnRequest) bool {
	return !slices.ContainsFunc(req.Compare, func(c *pb.Compare) bool { return !strings.Contains(string(c.Key), "/own/") })
}

// takeKind tells apart the transactions that put a claim's key.
func takeKind(req *pb.TxnRequest, own *put) Kind {
	var holder struct{ Kind string }
	_ = json.Unmarshal([]byte(own.value), &holder)
	if holder.Kind == "zombie" || holder.Kind == "resting" {
		return Rehome
	}
	for _, c := range req.Compare { // that the key is its own, and its line is read if it is not
		if strings.Contains(string(c.Key), "/own/") && c.Target == pb.Compare_MOD && readsLine(req) {
			return Pass
		}
	}
	for _, c := range req.Compare { // that its own place stands
		if strings.Contains(string(c.Key), "/wait/") && len(c.RangeEnd) == 0 {
			return Advance
		}
	}
	return Acquire
}

// readsLine reports whether the other branch reads who stands in line.
func readsLine(req *pb.TxnRequest) bool {
	return slices.ContainsFunc(req.Failure, func(op *pb.RequestOp) bool {
		r := op.GetRequestRange()
		return r != nil && strings.Contains(string(r.Key), "/wait/") && len(r.RangeEnd) > 0
	})
}

// touches reports whether a request is of the claim on the key.
func touches(req any, key string) bool {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return false
	}
	own := "/own/" + key
	for _, c := range txn.Compare {
		if strings.HasSuffix(string(c.Key), own) {
			return true
		}
	}
	for _, op := range slices.Concat(txn.Success, txn.Failure) {
		if n := op.GetRequestTxn(); n != nil && touches(n, key) {
			return true
		}
		if r := op.GetRequestRange(); r != nil && strings.HasSuffix(string(r.Key), own) {
			return true
		}
		if p := op.GetRequestPut(); p != nil && strings.HasSuffix(string(p.Key), own) {
			return true
		}
		if d := op.GetRequestDeleteRange(); d != nil && strings.HasSuffix(string(d.Key), own) {
			return true
		}
	}
	return false
}
