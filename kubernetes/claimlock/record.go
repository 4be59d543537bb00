package claimlock

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// record is the stored record. The elector compares the JSON that Get returns with
// that of its last Get, so it notices every renewal by the revision, although times
// are in full seconds.
type record struct {
	resourcelock.LeaderElectionRecord
	Fence    int64 `json:"fence,omitempty"`
	Revision int64 `json:"revision,omitempty"` // of the record in etcd; not stored
}

// snapshot is what Get has seen.
type snapshot struct {
	held     bool  // the key was claimed
	revision int64 // of the record; 0 if there was none
}

// Names of holders that no elector may take for itself.
const (
	outsider = "a claim outside the election"
	ended    = " (ended)"
)

// leads reports whether the candidate leads as far as it knows.
func (l *Lock) leads() bool {
	claim := l.Claim()
	return claim != nil && claim.Err() == nil
}

// Get implements [resourcelock.Interface]. The record names no holder if the key is
// free. If this candidate's claim is lost or its elector has stopped, the holder is not
// the candidate's identity, whatever is stored.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	own := l.claims.OwnKey(l.cfg.Key)
	resp, err := l.claims.Etcd().Txn(ctx).Then(
		clientv3.OpGet(own, clientv3.WithKeysOnly()),
		clientv3.OpGet(l.cfg.Record),
	).Commit()
	if err != nil {
		return nil, nil, fmt.Errorf("claimlock: read the record of %q: %w", l.cfg.Key, err)
	}
	var r record
	var now snapshot
	var claimed int64 // revision of the claim
	var stored []byte
	for _, read := range resp.Responses {
		for _, kv := range read.GetResponseRange().GetKvs() {
			switch string(kv.Key) {
			case own:
				now.held, claimed = true, kv.ModRevision
			case l.cfg.Record:
				now.revision, stored = kv.ModRevision, kv.Value
			}
		}
	}
	if now.revision > 0 {
		if err := json.Unmarshal(stored, &r); err != nil {
			return nil, nil, fmt.Errorf("claimlock: read the record of %q: %w", l.cfg.Key, err)
		}
	}
	l.mu.Lock()
	l.last = now
	l.mu.Unlock()
	r.Revision = now.revision
	switch {
	case !now.held && now.revision == 0:
		return nil, nil, apierrors.NewNotFound(resource, l.cfg.Key)
	case !now.held:
		r.HolderIdentity, r.Fence = "", 0
	case now.revision < claimed: // the claim came without a record
		r.HolderIdentity, r.Fence = outsider, 0
	case r.HolderIdentity == l.identity && !l.leads():
		r.HolderIdentity += ended
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, nil, fmt.Errorf("claimlock: read the record of %q: %w", l.cfg.Key, err)
	}
	return &r.LeaderElectionRecord, raw, nil
}
