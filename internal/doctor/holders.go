package doctor

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// slotMark stands between a key and the number of one of its slots.
var slotMark = strings.TrimSuffix(etcdclaims.SlotKey("", 0), "0")

// SlotPrefix returns the prefix of the keys of all slots of a key. Other keys can have it,
// too: see SlotOf.
func SlotPrefix(key string) string { return key + slotMark }

// SlotOf returns the number of the slot of a key that has the given key, or -1.
func SlotOf(key, slotKey string) int {
	text, ok := strings.CutPrefix(slotKey, SlotPrefix(key))
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || n >= etcdclaims.MaxSlots || etcdclaims.SlotKey(key, n) != slotKey {
		return -1
	}
	return n
}

// WholeOf returns the key that has the given one as a slot, as far as its name shows that.
// It returns "" for any other key.
func WholeOf(slotKey string) string {
	if i := strings.LastIndex(slotKey, slotMark); i > 0 && SlotOf(slotKey[:i], slotKey) >= 0 {
		return slotKey[:i]
	}
	return ""
}

// SlotHolders returns the claims on the slots of a key, in the order of the slots. After
// Resize to fewer slots some can be beyond their number. It reads as many keys as most,
// and reports whether there are more.
func SlotHolders(ctx context.Context, claims *etcdclaims.Client, key string, most int) (held []etcdclaims.Info, more bool, err error) {
	held, more, err = first(claims.List(ctx, SlotPrefix(key)), most)
	held = slices.DeleteFunc(held, func(i etcdclaims.Info) bool { return SlotOf(key, i.Key) < 0 })
	slices.SortFunc(held, func(a, b etcdclaims.Info) int { return cmp.Compare(SlotOf(key, a.Key), SlotOf(key, b.Key)) })
	return held, more, err
}

// Sharers returns the claims that share a key. It reads as many as most, and reports
// whether there are more.
func Sharers(ctx context.Context, claims *etcdclaims.Client, key string, most int) (held []etcdclaims.Info, more bool, err error) {
	return first(claims.List(ctx, etcdclaims.SharedPrefix(key)), most)
}

func first(list iter.Seq2[etcdclaims.Info, error], most int) (infos []etcdclaims.Info, more bool, err error) {
	for i, err := range list {
		if err != nil {
			return nil, false, err
		}
		if len(infos) == most {
			return infos, true, nil
		}
		infos = append(infos, i)
	}
	return infos, false, nil
}

// Renewal is the last renewal of a holder's lease. Etcd returns the rest of a lease in full
// seconds, so the time is known to a second.
type Renewal struct {
	At      time.Time     // by the clock of this host; of the grant if there was no renewal yet
	Ago     time.Duration // At, before it was rounded
	TTL     time.Duration
	Overdue bool // the holder has missed a renewal
}

// LastRenewal asks etcd how old the lease of a holder is. It returns nil without an error
// if the key has no lease, or the lease is gone and the key is about to follow.
func LastRenewal(ctx context.Context, claims *etcdclaims.Client, i etcdclaims.Info) (*Renewal, error) {
	if !i.Held || i.Lease == clientv3.NoLease {
		return nil, nil
	}
	asked := clock.Mono()
	lease, err := LiveLease(ctx, claims.Etcd(), i.Lease)
	if err != nil || lease == nil {
		return nil, err
	}
	ttl, ago := age(lease)
	// A lock, and what stays held after its claim, are renewed on demand or by nobody.
	return &Renewal{At: asked.Add(-ago).Round(time.Second), Ago: ago, TTL: ttl, Overdue: i.Kind == "" && overdue(ttl, ago)}, nil
}

// overdue reports whether the holder of a lease has missed a renewal: one is due when a third
// of the lease time has passed. etcd tells what is left in full seconds.
func overdue(ttl, ago time.Duration) bool { return ago > ttl/3+2*time.Second }

// age returns the TTL of a lease, and how long ago it was renewed or granted.
func age(lease *clientv3.LeaseTimeToLiveResponse) (ttl, ago time.Duration) {
	ttl = time.Duration(lease.GrantedTTL) * time.Second
	return ttl, max(ttl-time.Duration(lease.TTL)*time.Second-time.Second/2, 0)
}
