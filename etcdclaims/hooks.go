package etcdclaims

import (
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// Hooks are called when something happens to claims, on the goroutine on which
// it happens: they must be quick and must not call the client. A nil one is
// left out.
type Hooks struct {
	// Acquired is told of each new term.
	Acquired func(fencing.Token)
	// Released is told of each term that its holder gave up.
	Released func(fencing.Token)
	// Lost is told of each term that ended otherwise.
	Lost func(*LostError)
	// Zombie is told of each handler that did not return within the drain
	// after it was told to stop. Its claim is being re-homed: what it writes
	// under its fence is refused as soon as etcd has that.
	Zombie func(Zombie)
	// Renewed is told of each verified renewal of a session.
	Renewed func(Renewal)
}

// Zombie is a handler that went on for too long.
type Zombie struct {
	Token fencing.Token
	Told  error         // why it was told to stop
	Drain time.Duration // how long it was given
}

// Renewal is one verified renewal of a session.
type Renewal struct {
	TTL    time.Duration // granted
	Margin time.Duration // that was left to the deadline before it
	Claims int           // that the session carries
}
