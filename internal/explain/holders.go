package explain

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
)

// slotMark stands between a key and the number of one of its slots.
var slotMark = strings.TrimSuffix(etcdclaims.SlotKey("", 0), "0")

// SlotOf returns the number of the slot of a key that has the given key, or -1.
func SlotOf(key, slotKey string) int {
	text, ok := strings.CutPrefix(slotKey, key+slotMark)
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
// Resize to fewer slots some can be beyond their number. It reports whether there may be more.
func SlotHolders(ctx context.Context, claims *etcdclaims.Client,
	key string,
) (held []etcdclaims.Info, more bool, err error) {
	const most = 4 * etcdclaims.MaxSlots // others can have claimed keys whose names begin like those of slots
	held, more, err = First(claims.List(ctx, key+slotMark), most)
	held = slices.DeleteFunc(held, func(i etcdclaims.Info) bool { return SlotOf(key, i.Key) < 0 })
	slices.SortFunc(held, func(a, b etcdclaims.Info) int { return cmp.Compare(SlotOf(key, a.Key), SlotOf(key, b.Key)) })
	return held, more, err
}

// First returns the first of a list, also those before and behind an error, with the first error.
// It reports whether there may be more than most.
func First[T any](list iter.Seq2[T, error], most int) (all []T, more bool, failed error) {
	for v, err := range list {
		switch {
		case len(all) == most:
			return all, true, failed
		case err != nil:
			failed = cmp.Or(failed, err)
		default:
			all = append(all, v)
		}
	}
	return all, false, failed
}
