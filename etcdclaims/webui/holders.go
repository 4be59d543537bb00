package webui

import (
	"context"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
)

// Kinds of keys that have several claims. Such a key has a record in the place of
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

// ofKey returns the key that has the given one as a slot, or that its holder shares, as
// far as its name shows that. It returns "" for any other key.
func ofKey(key string) string {
	if whole := doctor.WholeOf(key); whole != "" {
		return whole
	}
	return key[:max(strings.LastIndex(key, etcdclaims.SharedPrefix("")), 0)]
}

// holders are the claims of a key that has slots or is shared.
type holders struct {
	claims []etcdclaims.Info
	more   bool // not all are read
}

// readHolders reads the claims on the slots of a key, or those that share it.
func (h *Handler) readHolders(ctx context.Context, i etcdclaims.Info) (found holders, err error) {
	switch i.Kind {
	case kindSlots:
		found.claims, found.more, err = doctor.SlotHolders(ctx, h.claims, i.Key, mostBeside)
	case kindShared:
		found.claims, found.more, err = doctor.Sharers(ctx, h.claims, i.Key, mostHolders)
	}
	for n := range found.claims {
		found.claims[n].Expires = time.Time{} // the latest possible one, which differs at each reading
	}
	return found, err
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
		row := holderRow{Info: claim, Slot: doctor.SlotOf(x.info.Key, claim.Key), Carries: claim.Fence, Note: q.value(FieldNote, string(claim.Note))}
		row.Surplus = row.Slot >= x.info.Slots
		if x.info.Kind == kindShared {
			row.Slot, row.Carries = -1, x.info.Fence
		}
		row.CanRelease = q.can(Operation{Action: actionRelease, Key: claim.Key, Fence: claim.Fence})
		rows = append(rows, row)
	}
	return rows
}

// ownerText returns the owner of a claim, or a text for a record.
func ownerText(kind, owner string) string {
	switch kind {
	case kindSlots:
		return "(several: each has a slot)"
	case kindShared:
		return "(several: they share it)"
	}
	return owner
}
