package history

import (
	"encoding/json"
	"errors"
	"io"
)

// Explained says whether some order explains the history, searched for without
// the shortcuts of the model: a lapse comes at any time after its grant, and no
// conflict is looked for. It is for histories in which nothing is taken.
func Explained(h *History, steps int) (ok, decided bool) {
	p := newTimeline(h.snapshot())
	for _, k := range p.keys {
		ops := k.operations(p, defaultGrace)
		for i := range ops {
			if in := ops[i].Input.(step); in.name == nameLapse {
				ops[i].Call, ops[i].Return = 2*in.seqs[0], 2*p.never()
			}
		}
		if ok, decided := explained(ops, steps); !ok {
			return false, decided
		}
	}
	return true, true
}

// Conflicts says of how many keys two operations conflict, and of how many of
// them the search finds no order that explains them.
func Conflicts(h *History) (conflicts, unexplained int) {
	p := newTimeline(h.snapshot())
	for _, k := range p.keys {
		ops := k.operations(p, defaultGrace)
		if findConflict(ops) != nil {
			conflicts++
		}
		if ok, _ := explained(ops, 1_000_000); !ok {
			unexplained++
		}
	}
	return conflicts, unexplained
}

// Read reads a history that Write wrote.
func Read(r io.Reader) (*History, error) {
	h := New()
	for dec := json.NewDecoder(r); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, err
		}
		h.events = append(h.events, e)
	}
}
