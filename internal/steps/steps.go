// Package steps recognizes what a request to etcd is for: which step of the protocol of
// claims it carries out. Tests of this project name the steps in a claimtest.Fault; users
// name what package claimtest has constants for.
package steps

import (
	"encoding/json"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A Kind is the purpose of a request. A request has several kinds if it carries several
// requests, as clients send them under load, or if its step has a wider kind, too.
type Kind string

// Kinds of requests. One that has no constant here has the name of etcd's method in lower
// case: "put", "deleterange", "authenticate".
const (
	Every Kind = "" // all requests

	Acquire  Kind = "acquire"  // claims a key, or tries to: Take, Enqueue, Advance, TakeOver
	Take     Kind = "take"     // claims a free key
	Enqueue  Kind = "enqueue"  // claims a free key, or joins the line
	Advance  Kind = "advance"  // claims a key for a waiter in line
	TakeOver Kind = "takeover" // takes a key from a holder that did not answer
	Resolve  Kind = "resolve"  // reads the outcome of an acquisition whose reply was lost
	Undo     Kind = "undo"     // reverses an acquisition whose caller gave up
	Note     Kind = "note"     // Claim.Note
	Release  Kind = "release"  // gives a key up: Free, HandOver, Pass
	Free     Kind = "free"     // frees a key that has no waiters
	HandOver Kind = "handover" // gives a key to the first waiter in line
	Pass     Kind = "pass"     // gives a key to another caller in the same client
	Ending   Kind = "ending"   // Work.Complete, Fail, Release
	Rehome   Kind = "rehome"   // moves a key to a lease of its own, for a zombie or MinHold
	Leave    Kind = "leave"    // leaves the line
	Notify   Kind = "notify"   // notifies a holder of a forced release
	Ask      Kind = "ask"      // asks a suspectable holder's client whether it lives
	Answer   Kind = "answer"   // answers that, or withdraws the question
	Unnotify Kind = "unnotify" // removes that notice, or a handoff notice

	Grant      Kind = "grant"     // grants a lease
	Sentinel   Kind = "sentinel"  // opens a session
	KeepAlive  Kind = "keepalive" // renews a lease
	Verify     Kind = "verify"    // reads whether claims are still owned; also other reads at one revision
	Revoke     Kind = "revoke"    // revokes a lease
	TimeToLive Kind = "ttl"       // reads the TTL of a lease

	Range  Kind = "range" // a plain read
	Watch  Kind = "watch"
	Status Kind = "status" // reads a server's version
	Other  Kind = "other"  // mostly transactions of users
)

// wider has the steps that belong to a wider kind.
var wider = map[Kind]Kind{
	Take: Acquire, Enqueue: Acquire, Advance: Acquire, TakeOver: Acquire,
	Free: Release, HandOver: Release, Pass: Release,
}

// Of determines the kinds of a request from its operations.
func Of(method string, req any) []Kind {
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
		kinds := txnKinds(req.(*pb.TxnRequest))
		for _, step := range slices.Clone(kinds) {
			if wide, ok := wider[step]; ok && !slices.Contains(kinds, wide) {
				kinds = append(kinds, wide)
			}
		}
		return kinds
	default:
		return []Kind{Kind(strings.ToLower(name))}
	}
}

// put is one key written by a transaction.
type put struct{ key, value string }

// changes are the operations of a transaction, by branch.
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

// isQuestion reports whether a key asks a client whether it lives. Requests to the owner of a
// group of schedulers have keys of a similar form.
func isQuestion(key string) bool {
	_, of, ok := strings.Cut(key, "/session/")
	return ok && strings.Contains(of, "/ask/")
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
	case slices.ContainsFunc(c.failed, isQuestion):
		return []Kind{Ask}
	case slices.ContainsFunc(c.deleted, isQuestion):
		return []Kind{Answer}
	case c.put("/own/") != nil && c.put("/evict/") != nil:
		return []Kind{TakeOver}
	case c.put("/live/") != nil:
		return []Kind{Sentinel}
	case own != nil && c.put("/won/") != nil:
		return []Kind{HandOver}
	case own != nil:
		return []Kind{takeKind(req, own)}
	case c.put("/evict/") != nil:
		return []Kind{Notify}
	case c.ends():
		return []Kind{Ending}
	case c.deletes("/own/"):
		return []Kind{Free}
	case c.put("/note/") != nil:
		return []Kind{Note}
	case c.deletes("/wait/"):
		return []Kind{Leave}
	case c.deletes("/evict/"), c.deletes("/won/"):
		return []Kind{Unnotify}
	case len(c.puts)+len(c.deleted) == 0 && asksForOwners(req):
		return []Kind{Verify}
	}
	return []Kind{Other}
}

// looksForItself reports whether a request compares the value of a claim's key. That of
// a key with slots is not a claim, and a range of keys is not one's own.
func looksForItself(req *pb.TxnRequest) bool {
	return slices.ContainsFunc(req.Compare, func(c *pb.Compare) bool {
		return c.Target == pb.Compare_VALUE && len(c.RangeEnd) == 0 && strings.Contains(string(c.Key), "/own/") &&
			!strings.Contains(string(c.GetValue()), `"kind":"slots"`)
	})
}

// voids counts the void keys that a batch of requests puts.
func (c changes) voids() (n int) {
	for _, p := range c.puts {
		if strings.Contains(p.key, "/void/") {
			n++
		}
	}
	return n
}

// asksForOwners reports whether all conditions of a request are about claims.
func asksForOwners(req *pb.TxnRequest) bool {
	return !slices.ContainsFunc(req.Compare, func(c *pb.Compare) bool { return !strings.Contains(string(c.Key), "/own/") })
}

// takeKind distinguishes the transactions that put a claim's key.
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
	return Take
}

// readsLine reports whether the failure branch reads the line of a key.
func readsLine(req *pb.TxnRequest) bool {
	return slices.ContainsFunc(req.Failure, func(op *pb.RequestOp) bool {
		r := op.GetRequestRange()
		return r != nil && strings.Contains(string(r.Key), "/wait/") && len(r.RangeEnd) > 0
	})
}

// Touches reports whether a request concerns the claim on the key.
func Touches(req any, key string) bool {
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
		if n := op.GetRequestTxn(); n != nil && Touches(n, key) {
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
