package registry

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
)

// mostRecords is how many records are remembered of keys that the client no longer shares.
// Others may share them still, and then the next request need not be refused.
const mostRecords = 1024

// recordOf is the record of a key that the client shares, or has shared.
type recordOf struct {
	rev   int64 // of the newest
	epoch int64 // under which that was put
	terms int   // how many of them share the key
}

// RecordRev returns the revision of the record, put under the epoch, of a key that the
// client shares or has shared, or 0. There may be another one by now.
func (r *Registry[T, W]) RecordRev(key string, epoch int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.records[key]; of.epoch == epoch {
		return of.rev
	}
	return 0
}

// RecordBy returns how many claims of the client belong to the record of a key.
func (r *Registry[T, W]) RecordBy(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[key].terms
}

// count counts the terms that belong to a record with a fence for all; r.mu is held.
func (r *Registry[T, W]) count(t *protocol.Held, by int) {
	record := t.Mode.Guard(t.Fence)
	if !record.Unchanged {
		return
	}
	key, epoch := t.Mode.Keys().User, keyspace.Epoch(t.Fence)
	now := r.records[key]
	if now.terms += by; now.terms == 0 && (now.rev == 0 || len(r.records) > mostRecords) {
		delete(r.records, key)
		return
	}
	if by > 0 && (record.Rev > now.rev || epoch > now.epoch) {
		now.rev, now.epoch = record.Rev, epoch
	}
	r.records[key] = now
}

// ForgetRecord forgets a record that is gone, or soon will be.
func (r *Registry[T, W]) ForgetRecord(key string, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.records[key]; now.rev == rev {
		now.rev = 0
		r.records[key] = now
		if now.terms == 0 {
			delete(r.records, key)
		}
	}
}
