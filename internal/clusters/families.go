package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Rank sorts names of clusters by rendezvous hashing: a family ought to be in the first.
// If a cluster comes or goes, only the families move that are to be in it, or were.
func Rank(family string, names []string) []string {
	weight := func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name + "\x00" + family))
		return mix(h.Sum64())
	}
	ranked := slices.Clone(names)
	slices.SortFunc(ranked, func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a, b))
	})
	return ranked
}

// mix spreads each bit of a hash over all bits: those of FNV differ little for names that
// differ in their first bytes. It is the last step of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Families finds and moves families. Its methods are safe for concurrent use, as long as
// nobody changes its fields.
type Families struct {
	// Founders are the names of the clusters in which families are born. All processes
	// have the same, for ever.
	Founders []string
	// Clusters are all that this process knows, by name.
	Clusters map[string]clientv3.KV
}

// Place is where a family is.
type Place struct {
	Cluster string
	family  string
	raw     string
}

// Here is the condition, for etcdclaims.If, under which claims of the family may be acquired in
// the cluster.
func (p Place) Here() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(Key(p.family)), "=", p.raw)
}

var errUnknownCluster = errors.New("clusters: this process does not know the cluster")

func (f *Families) cluster(name string) (clientv3.KV, error) {
	kv := f.Clusters[name]
	if kv == nil {
		return nil, fmt.Errorf("%w %q", errUnknownCluster, name)
	}
	return kv, nil
}

// Find returns the home of a family, which is born if it is new. It begins in the cluster hint,
// such as the last home that was known, unless hint is empty. It follows each move to its end, and
// opens the new home if the process that moved the family has not.
//
// The family may have moved when Find returns. An acquisition under Here is then refused.
func (f *Families) Find(ctx context.Context, family, hint string) (Place, error) {
	p, _, err := f.find(ctx, family, hint)
	return p, err
}

func (f *Families) find(ctx context.Context, family, hint string) (Place, state, error) {
	birthplace := Rank(family, f.Founders)[0]
	at, sealed := cmp.Or(hint, birthplace), int64(0) // the generation with which the family was sealed before
	for {
		kv, err := f.cluster(at)
		if err != nil {
			return Place{}, state{}, err
		}
		s, err := read(ctx, kv, family)
		switch {
		case err != nil:
		case s.here() && s.record.Generation >= sealed:
			return Place{Cluster: at, family: family, raw: s.raw}, s, nil
		case s.record.Generation > sealed: // it has moved on
			at, sealed = s.record.MovedTo, s.record.Generation
		case sealed > 0:
			_, err = s.open(ctx, kv, family, sealed)
		case at != birthplace: // the hint was wrong
			at = birthplace
		default:
			_, err = s.bear(ctx, kv, family)
		}
		if err != nil {
			return Place{}, state{}, fmt.Errorf("clusters: find family %q in cluster %q: %w", family, at, err)
		}
	}
}

// Move moves a family to a cluster, and ends all its claims elsewhere. After an error the family may
// have moved, or may be about to: call Move again.
//
// Between the two steps of a move nobody can acquire. So Move first makes sure that the new home answers.
// If it is away by then, the family waits until it returns.
func (f *Families) Move(ctx context.Context, family, to string) error {
	target, err := f.cluster(to)
	if err != nil {
		return err
	}
	for {
		p, s, err := f.find(ctx, family, "")
		if err != nil || p.Cluster == to {
			return err
		}
		if _, err := read(ctx, target, family); err != nil {
			return fmt.Errorf("clusters: move family %q: cluster %q does not answer: %w", family, to, err)
		}
		home, err := f.cluster(p.Cluster)
		if err != nil {
			return err
		}
		if _, err := s.seal(ctx, home, family, to); err != nil {
			return fmt.Errorf("clusters: move family %q from %q to %q: %w", family, p.Cluster, to, err)
		}
	}
}
