package world

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// granted checks that an attempt may get the claim that was just put for it.
func (w *World) granted(before etcdmodel.State, k *etcdmodel.Key, claim string) error {
	if before.Get(absent).Modified > 0 {
		return fmt.Errorf("%s was put for %s, although the condition of its caller does not hold", k.Name, claim)
	}
	epoch, _ := strconv.ParseInt(w.etcd.Get(layout.Epoch()).Value, 10, 64)
	if h, err := protocol.DecodeHolder([]byte(k.Value)); err == nil && h.Epoch != epoch {
		return fmt.Errorf("%s was put for %s under the epoch %d, not %d", k.Name, claim, h.Epoch, epoch)
	}
	record, err := protocol.DecodeHolder([]byte(w.etcd.Get(layout.Own(userKey)).Value))
	line, reads := layout.Waiting(userKey), strings.HasPrefix(k.Name, layout.Sharers(userKey))
	if text, slot := strings.CutPrefix(k.Name, layout.Own(userKey+keyspace.SlotSuffix)); slot {
		line = layout.Waiting(keyspace.SlotFamily(userKey))
		n := 0
		if err == nil && record.Kind == protocol.KindSlots {
			n = record.Slots
		}
		if text >= fmt.Sprint(n) {
			return fmt.Errorf("slot %s was given to %s, and there are %d", text, claim, n)
		}
	}
	if reads && err == nil && record.Epoch != epoch {
		return fmt.Errorf("%s was put for %s beside a record of the epoch %d, not %d", k.Name, claim, record.Epoch, epoch)
	}
	var own, first *etcdmodel.Key
	for _, place := range before.Under(line) {
		switch id := strings.TrimPrefix(place.Name, line); {
		case protocol.PlacedID([]byte(place.Name)) == claim:
			own = place
		case reads && protocol.PlacedID([]byte(place.Name)) != id: // that of a reader, too
		case first == nil || place.Created < first.Created:
			first = place
		}
	}
	if first != nil && (own == nil || first.Created < own.Created) {
		return fmt.Errorf("%s was put for %s, although %s is before it", k.Name, claim, first.Name)
	}
	return nil
}

// refusesSlots reports whether a call may be refused for the number of slots: not after it has waited in line.
func (w *World) refusesSlots(c *client) bool {
	return w.scope.Faults[Resize] > 0 && c.act.Request.Ticket != nil // it was no Advance
}

// resizes are changes of the number of slots.
func (w World) resizes(all []event) []event {
	if !w.may(Resize) {
		return all
	}
	for n := 1; n <= 3; n++ {
		step := protocol.Resize{Layout: layout, Key: userKey, N: n}
		_, resp, err := w.etcd.Txn(&pb.TxnRequest{Success: step.Reads()})
		if err != nil {
			continue
		}
		if sized := step.Judge(resp); sized.Whole == nil && !sized.Done {
			all = w.fault(all, Resize, told("an operator changed the number of slots to %d", n), func(next *World) error {
				_, _, bad := next.transact(sized.Change.In)
				return bad
			})
		}
	}
	return all
}

// puts has the condition of the callers fail.
func (w World) puts(all []event) []event {
	return w.fault(all, Unmeeting, told("somebody put %s", absent), func(n *World) error {
		return n.do(txn.Put([]byte(absent), "", int64(0)))
	})
}
