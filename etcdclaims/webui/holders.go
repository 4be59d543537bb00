package webui

import (
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
)

// ofKey returns the key that has the given one as a slot, or that its holder shares, as
// far as its name shows that. It returns "" for any other key.
func ofKey(key string) string {
	if whole := explain.WholeOf(key); whole != "" {
		return whole
	}
	return key[:max(strings.LastIndex(key, etcdclaims.SharedPrefix("")), 0)]
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

// HasKind reports whether one of the holders has something to show in the column Kind.
func (p keyPage) HasKind() bool {
	return slices.ContainsFunc(p.Holders, func(r holderRow) bool { return kindOf(r.Info) != "" || r.Attempt > 0 })
}

func (q *request) holderRows(x explain.Key) (rows []holderRow) {
	for _, claim := range x.Holders {
		row := holderRow{
			Info: claim, Slot: explain.SlotOf(x.Info.Key, claim.Key), Carries: claim.Fence,
			Note: q.value(FieldNote, string(claim.Note)),
		}
		row.Surplus = row.Slot >= x.Info.Slots
		if x.Info.Kind == explain.KindShared {
			row.Slot, row.Carries = -1, x.Info.Fence
		}
		row.CanRelease = q.can(Operation{Action: actionRelease, Key: claim.Key, Fence: claim.Fence})
		rows = append(rows, row)
	}
	return rows
}

// ownerText returns the owner of a claim, or a text for a record.
func ownerText(kind, owner string) string {
	switch kind {
	case explain.KindSlots:
		return "(several: each has a slot)"
	case explain.KindShared:
		return "(several: they share it)"
	}
	return owner
}
