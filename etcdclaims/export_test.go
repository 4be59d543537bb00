package etcdclaims

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// LocalWaiters is how many callers a claim keeps that wait for it in its client.
func LocalWaiters(cl *Claim) int { return len(cl.t.s.c.local.waiting(&cl.t.local)) }

// RecordsPut is how many records a client counts on the lease that it would put the next on.
func RecordsPut(c *Client) int64 {
	c.records.mu.Lock()
	defer c.records.mu.Unlock()
	return c.records.current[0].puts.Load()
}

// MostTermsKept is how many terms History keeps at most while it reads so many and returns
// the newest ones, and how many it leaves out.
func MostTermsKept(c *Client, newest, terms int) (most, older int) {
	log := &termLog{c: c, key: "k", keep: newest}
	own := []byte(c.store.layout.own("k"))
	for i := range int64(terms) {
		log.add(&clientv3.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: own, ModRevision: 2*i + 2, Value: []byte("{}")}})
		log.add(&clientv3.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: own, ModRevision: 2*i + 3}})
		most = max(most, len(log.terms))
	}
	return most, log.dropped + len(log.terms) - len(log.newest())
}

// ReadSessions reads the notices of a client, as it does when their watch has ended.
func ReadSessions(c *Client) (int64, error) {
	return c.readSessions(c.store.layout.session(c.store.layout.instance))
}

// NoteOrigin does what each acquisition does to know its caller.
func NoteOrigin() { _ = siteOf() }
