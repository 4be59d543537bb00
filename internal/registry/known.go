package registry

import (
	"strings"

	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Known are all claims that the client has, is about to have, or is about
// to give up.
type Known struct {
	held     map[string]string // id of the claim on each key: keys claimed together share one
	noticed  map[string]bool   // ids of those that have a notice
	underWay map[string]bool   // ids of claims that are neither held nor given up yet
}

// Has reports whether a key is of one of these claims. A notice has the id in its name, a claim
// and a place in line in their values.
func (k Known) Has(kv *mvccpb.KeyValue, l protocol.Layout) bool {
	name := string(kv.Key)
	key, own := strings.CutPrefix(name, l.Own(""))
	if !own {
		if id, noticed := l.Noticed(name); noticed {
			return k.noticed[id] || k.underWay[id]
		}
		return k.underWay[protocol.Placed(kv)]
	}
	h, err := protocol.DecodeHolder(kv.Value)
	if err != nil || h.Claim == "" {
		return false
	}
	return k.held[key] == h.Claim || k.underWay[h.Claim]
}

// Known returns the claims that are held or under way.
func (r *Registry[T, W]) Known() Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := Known{
		held:     make(map[string]string, len(r.terms)),
		noticed:  make(map[string]bool),
		underWay: make(map[string]bool, len(r.underWay)),
	}
	for key, e := range r.terms {
		k.held[key] = e.ID
		if e.Noticed {
			k.noticed[e.ID] = true
		}
	}
	for id := range r.underWay {
		k.underWay[id] = true
	}
	return k
}
