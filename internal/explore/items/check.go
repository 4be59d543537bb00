package items

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/item"
)

// places returns the states of an item below a prefix.
func (s *State) places(id, prefix string) (all []item.State) {
	for _, key := range s.etcd.Under(prefix) {
		if !strings.Contains(key.Value, `"id":"`+id+`"`) {
			continue // decoding takes the most time of a search
		}
		if st, err := item.DecodeState(key.KV()); err == nil {
			all = append(all, st)
		}
	}
	return all
}

// Check returns what is wrong in the state itself.
func (s State) Check() error {
	for i := range s.scope.Items {
		if err := s.checkItem(ids[i], s.ledger[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) checkItem(id string, l ledger) error {
	var at []string
	var st item.State
	for _, place := range []struct{ name, prefix string }{
		{"ready", keys.Ready()}, {"later", keys.Later()}, {"taken", keys.Taken()}, {"dead", keys.Dead()},
	} {
		for _, one := range s.places(id, place.prefix) {
			at, st = append(at, place.name), one
		}
	}
	lives := alive(s.etcd.Get(keys.Content(id)))
	switch {
	case l.seqs[0] > 1 || l.seqs[1] > 1:
		return fmt.Errorf("%s was enqueued twice by one request", id)
	case s.scope.Remember && l.put > 1:
		return fmt.Errorf("%s was enqueued %d times, although it is remembered", id, l.put)
	case lives != (l.put > l.done) || l.done > l.put:
		return fmt.Errorf("%s was enqueued %d times and completed %d times, but its content exists: %v",
			id, l.put, l.done, lives)
	case lives && len(at) == 0:
		return fmt.Errorf("%s is lost", id)
	case lives && len(at) > 1:
		return fmt.Errorf("%s is at several places: %s", id, strings.Join(at, ", "))
	case !lives && len(at) > 0:
		return fmt.Errorf("%s has no content, but is %s", id, at[0])
	}
	if effects := len(s.etcd.Under("effect/" + id + "/")); effects != int(l.done) {
		return fmt.Errorf("%s was completed %d times, what goes with that happened %d times", id, l.done, effects)
	}
	if lives {
		return s.checkAttempts(id, at[0], st)
	}
	return nil
}

// checkAttempts checks that each attempt counts once, and that fences rise. Nobody raises the epoch.
func (s *State) checkAttempts(id, at string, st item.State) error {
	begun := len(st.History)
	if at == "taken" {
		begun++
	}
	if st.Attempts != begun {
		return fmt.Errorf("%s has %d attempts, and %d of them count", id, st.Attempts, begun)
	}
	for n, a := range st.History {
		if a.Number != n+1 || a.Fence > s.etcd.Revision() || n > 0 && a.Fence <= st.History[n-1].Fence {
			return fmt.Errorf("attempt %d of %s is the number %d, with fence %d", n+1, id, a.Number, a.Fence)
		}
	}
	if st.Attempts > st.Max || at != "dead" && at != "taken" && st.Attempts == st.Max {
		return fmt.Errorf("%s has %d attempts of %d, and is %s", id, st.Attempts, st.Max, at)
	}
	return nil
}
