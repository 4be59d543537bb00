package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/etcdclaims/claims/fencing"
)

// A store of your own compares the fence in the step that writes: here under its mutex, in a
// database in the transaction of the write. fencetest.TestGate tests such a gate.
func ExampleGate() {
	var store store
	if err := store.put(fencing.Token{Key: "account/7", Fence: 12}, "100 EUR"); err != nil {
		log.Fatal(err)
	}
	err := store.put(fencing.Token{Key: "account/7", Fence: 11}, "90 EUR") // a former owner, too late
	fmt.Println("refused:", errors.Is(err, fencing.ErrStale))
	fmt.Println("stored:", store.value)
	// Output:
	// refused: true
	// stored: 100 EUR
}

// A store is a value, and a gate that must not forget the greatest fence.
type store struct {
	mu     sync.Mutex
	fences map[string]int64 // kept as long as the value
	value  string
}

func (s *store) put(t fencing.Token, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(t); err != nil {
		return err
	}
	s.value = value
	return nil
}

// Admit implements fencing.Gate.
func (s *store) Admit(_ context.Context, t fencing.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(t)
}

func (s *store) admit(t fencing.Token) error {
	if err := t.Validate(); err != nil { // fence 0, or no valid key
		return err
	}
	if newest := s.fences[t.Key]; t.Fence < newest {
		return &fencing.StaleError{Token: t, Newest: newest}
	}
	if s.fences == nil {
		s.fences = map[string]int64{}
	}
	s.fences[t.Key] = t.Fence
	return nil
}
