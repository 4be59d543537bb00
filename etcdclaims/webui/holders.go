package webui

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Kinds of keys that stand for several claims. Such a key has a record in the place of
// its claim, and the claims have keys of their own.
const (
	kindSlots  = "slots"
	kindShared = "shared"
)

func isRecord(kind string) bool { return kind == kindSlots || kind == kindShared }

const (
	mostHolders = etcdclaims.MaxSlots
	// mostBeside is how many keys are read to find the slots: others can have claimed keys
	// whose names begin like those of slots.
	mostBeside = 4 * etcdclaims.MaxSlots
)

// slotMark and sharedMark stand between a key and what names one of its claims.
var slotMark, sharedMark = strings.TrimSuffix(etcdclaims.SlotKey("", 0), "0"), etcdclaims.SharedPrefix("")

// ofKey returns the key that has the given one as a slot, or that its holder shares, as
// far as its name shows that. It returns "" for any other key.
func ofKey(key string) string {
	if i := strings.LastIndex(key, slotMark); i > 0 && slotOf(key[:i], key) >= 0 {
		return key[:i]
	}
	return key[:max(strings.LastIndex(key, sharedMark), 0)]
}

// slotOf returns the number of the slot of a key that has the given key, or -1.
func slotOf(key, slotKey string) int {
	text, ok := strings.CutPrefix(slotKey, key+slotMark)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || n >= etcdclaims.MaxSlots || etcdclaims.SlotKey(key, n) != slotKey {
		return -1
	}
	return n
}

// holders are the claims of a key that has slots or is shared.
type holders struct {
	claims []etcdclaims.Info
	more   bool // not all are read
}

// holdersOf reads who holds the slots of a key, or shares it.
func (h *Handler) holdersOf(ctx context.Context, i etcdclaims.Info) (found holders, err error) {
	prefix := etcdclaims.SharedPrefix(i.Key)
	switch i.Kind {
	case kindSlots:
		prefix = i.Key + slotMark
	case kindShared:
	default:
		return found, nil
	}
	read := 0
	for claim, err := range h.claims.List(ctx, prefix) {
		if err != nil {
			return holders{}, err
		}
		if read++; len(found.claims) == mostHolders || read > mostBeside {
			found.more = true
			break
		}
		if i.Kind == kindSlots && slotOf(i.Key, claim.Key) < 0 {
			continue
		}
		claim.Expires = time.Time{} // the latest possible one, which differs at each reading
		found.claims = append(found.claims, claim)
	}
	slices.SortStableFunc(found.claims, func(a, b etcdclaims.Info) int {
		return cmp.Compare(slotOf(i.Key, a.Key), slotOf(i.Key, b.Key))
	})
	return found, nil
}

// holderRow is the holder of one slot, or one of the callers that share a key.
type holderRow struct {
	etcdclaims.Info
	Slot       int   // -1 for a shared claim
	Surplus    bool  // the key has fewer slots by now
	Carries    int64 // the fence that its writes carry
	Note       string
	CanRelease bool
}

func (q *request) holderRows(x explained) (rows []holderRow) {
	for _, claim := range x.holders.claims {
		row := holderRow{Info: claim, Slot: slotOf(x.info.Key, claim.Key), Carries: claim.Fence, Note: q.value(FieldNote, string(claim.Note))}
		row.Surplus = row.Slot >= x.info.Slots
		if x.info.Kind == kindShared {
			row.Slot, row.Carries = -1, x.info.Fence
		}
		row.CanRelease = q.can(Operation{Action: ActionRelease, Key: claim.Key, Fence: claim.Fence})
		rows = append(rows, row)
	}
	return rows
}

// ownerText returns the owner of a claim, or what a record stands for.
func ownerText(kind, owner string) string {
	switch kind {
	case kindSlots:
		return "(several: each has a slot)"
	case kindShared:
		return "(several: they share it)"
	}
	return owner
}
