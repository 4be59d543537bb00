package etcdclaims

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
)

// HeldError describes the holder of a key. It matches ErrHeld.
type HeldError struct {
	// Info describes the holder, as far as the claim's key shows. Info.Held is
	// false if the key is free but other callers wait in line for it; then
	// Waiting is set. If the key is held, Note and Waiting may be missing. Use
	// Lookup for them.
	Info Info

	own bool // the holder is the client that returned the error
}

func (e *HeldError) Error() string {
	return "acquire " + strconv.Quote(e.Info.Key) + ": " + e.Info.standing(e.own)
}

// heldFor is a HeldError within the error of a call that does not acquire.
type heldFor struct{ *HeldError }

func (e heldFor) Error() string { return e.Info.standing(e.own) }

func (e heldFor) Unwrap() error { return e.HeldError }

// notAcquiring returns the error as that of a call that does not acquire, which adds its
// own name.
func notAcquiring(err error) error {
	if e, ok := err.(*HeldError); ok { //nolint:errorlint // a wrapped one has its call
		return heldFor{e}
	}
	return err
}

// standing returns a description of the holder, for errors of a client that is the holder
// itself or not: a caller that waits for its own claim would wait for ever.
func (i Info) standing(own bool) string {
	if !i.Held {
		return "free but others wait in line for it: use Acquire to join them"
	}
	if i.Kind == protocol.KindSlots {
		return fmt.Sprintf("divided into %s: use Slots(%d)", errtext.Count(i.Slots, "slot", "slots"), i.Slots)
	}
	if i.Kind == protocol.KindShared {
		by := "other callers"
		if i.Shared > 0 {
			by = errtext.Count(i.Shared, "caller", "callers")
		}
		return fmt.Sprintf("shared by %s (fence %d)", by, i.Fence)
	}
	s := "held by "
	switch {
	case i.Slots == 1:
		s = "held in its only slot by "
	case i.Slots > 1:
		s = fmt.Sprintf("held in all %d slots, the first of them by ", i.Slots)
	}
	s += i.Owner
	if own {
		s += " (this client)"
	}
	if i.Kind == protocol.KindZombie || i.Kind == protocol.KindResting {
		s += " (" + i.Kind + ")"
	}
	if !i.Since.IsZero() {
		s += " since " + i.Since.Format(time.RFC3339)
	}
	if !i.Expires.IsZero() {
		s += ", free at " + i.Expires.Format(time.RFC3339) + " at the latest if it is not renewed"
	}
	return s + fmt.Sprintf(" (fence %d)", i.Fence)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return errors.Is(ErrHeld, target) }

// Holder returns the label and the fence of the holder, and when its term
// began. All are zero if the key is free but other callers wait in line. Code
// that does not import this package can call it by an interface.
func (e *HeldError) Holder() (owner string, fence int64, since time.Time) {
	return e.Info.Owner, e.Info.Fence, e.Info.Since
}

// WaitError is returned when the context of a call such as Acquire ends while the
// caller waits in line. errors.Is finds the context's cause in it. It does not
// match ErrHeld.
type WaitError struct {
	Key string
	// Info is the last known holder of the key, which may have changed since.
	// Info.Held is false if no holder was seen: other callers are first in
	// line, or etcd has not answered.
	Info Info
	// Err is the cause of the context's end.
	Err error

	own bool // the holder is the client that returned the error
}

func (e *WaitError) Error() string {
	s := "acquire " + strconv.Quote(e.Key) + ": "
	if e.Info.Held {
		return s + e.Info.standing(e.own) + ": " + errtext.Bare(e.Err)
	}
	return s + "others are before it in line: " + errtext.Bare(e.Err)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// Holder returns the last known holder of the key; see HeldError.Holder.
func (e *WaitError) Holder() (owner string, fence int64, since time.Time) {
	return e.Info.Owner, e.Info.Fence, e.Info.Since
}
