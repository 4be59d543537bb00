package queue

import (
	"time"

	"github.com/etcdclaims/claims/internal/item"
)

// Attempt is one attempt of an item that did not complete it.
type Attempt struct {
	Number int    `json:"attempt"`
	Owner  string `json:"owner"` // label of the process
	Fence  int64  `json:"fence,string"`
	// Ending is how the attempt ended. "failed": the worker reported it. "lost": the worker's
	// process died, or did not answer. "discarded": the worker gave the item up for good.
	Ending string    `json:"ending"`
	Error  string    `json:"error,omitempty"` // up to 1,024 bytes
	At     time.Time `json:"at"`
}

// attempts returns the attempts that an item remembers.
func attempts(stored []item.Attempt) (all []Attempt) {
	for _, a := range stored {
		all = append(all, Attempt(a))
	}
	return all
}
