package etcdclaims

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// State is where work stands.
type State string

// The states of work.
const (
	StateFree     State = "free"     // given back without an outcome
	StateClaimed  State = "claimed"  // an owner works on it
	StateOrphaned State = "orphaned" // its owner is gone; never stored: claimed work whose key is free
	StateFailed   State = "failed"   // waits until NotBefore for its next attempt
	StateDone     State = "done"     // completed; remembered for Config.Retention
	StateDead     State = "dead"     // failed for good
)

// Record is what is stored of work. It outlives its owners.
type Record struct {
	Key        string
	State      State
	Attempt    int    // 1 for the first
	Fence      int64  // of the attempt
	Claim      string // id of the attempt's claim
	Owner      string // label of who made it
	Instance   string // client that made it
	Begun      time.Time
	Ended      time.Time // zero while claimed
	NotBefore  time.Time // of the next attempt, if failed
	Error      string    // of the last attempt that failed
	Result     string    // that it was completed with; see Work.CompleteWith
	AtMostOnce bool
}

// record is the value of work/<key>.
type record struct {
	Version    int       `json:"v"`
	State      State     `json:"state"`
	Attempt    int       `json:"attempt"`
	Fence      int64     `json:"fence,string,omitempty"` // unknown to the writer of claimed: its own revision
	Epoch      int64     `json:"epoch,omitempty"`
	Claim      string    `json:"claim"`
	Owner      string    `json:"owner"`
	Instance   string    `json:"instance"`
	Begun      time.Time `json:"begun"`
	Ended      time.Time `json:"ended,omitzero"`
	NotBefore  time.Time `json:"notBefore,omitzero"`
	Error      string    `json:"error,omitempty"`
	Result     []byte    `json:"result,omitempty"`
	AtMostOnce bool      `json:"atMostOnce,omitempty"`
}

func (r record) encode() string {
	r.Version = valueVersion
	return encode(r)
}

func decodeRecord(key string, kv *mvccpb.KeyValue) (Record, error) {
	var r record
	err := json.Unmarshal(kv.Value, &r)
	if err == nil && r.Version > valueVersion {
		err = fmt.Errorf("version %d is newer than this package's %d", r.Version, valueVersion)
	}
	if err != nil {
		return Record{}, fmt.Errorf("etcdclaims: the record of work %q cannot be read: %w", key, err)
	}
	out := Record{
		Key: key, State: r.State, Attempt: r.Attempt, Fence: r.Fence, Claim: r.Claim, Owner: r.Owner,
		Instance: r.Instance, Begun: r.Begun, Ended: r.Ended, NotBefore: r.NotBefore, Error: r.Error, Result: string(r.Result), AtMostOnce: r.AtMostOnce,
	}
	if r.State == StateClaimed {
		// It was written by the transaction that claimed the key.
		out.Fence = r.Epoch<<epochShift + kv.ModRevision
	}
	return out, nil
}

func (r Record) stored() record {
	return record{
		State: r.State, Attempt: r.Attempt, Fence: r.Fence, Claim: r.Claim, Owner: r.Owner,
		Instance: r.Instance, Begun: r.Begun, Ended: r.Ended, NotBefore: r.NotBefore, Error: r.Error, Result: []byte(r.Result), AtMostOnce: r.AtMostOnce,
	}
}
