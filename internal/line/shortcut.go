package line

import (
	"github.com/etcdclaims/claims/internal/protocol"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Shortcut is another reason for the first in line to advance than the end of what it waits for.
// The goroutine that waits calls it.
type Shortcut interface {
	// Begin notes that the wait begins, or continues at another position, until the returned
	// function is called.
	Begin(p protocol.Position, epoch int64) (end func())
	// News receives a value when Opens may return something else than before.
	News() <-chan struct{}
	// Opens returns what the attempt may take the key from now, or nil.
	Opens() *protocol.Over
	// Saw learns of an event of what the attempt waits for.
	Saw(ev *clientv3.Event)
	// Failed reports whether the attempt continues to wait after an error of the request that
	// should have taken the key so. Took learns that it has. over is nil for other requests.
	Failed(over *protocol.Over, err error) bool
	Took(over *protocol.Over, fence int64)
	Leave()
}

// NoShortcut is that of a call that wants none.
type NoShortcut struct{}

// Begin does nothing.
func (NoShortcut) Begin(protocol.Position, int64) (end func()) { return func() {} }

// News returns nil.
func (NoShortcut) News() <-chan struct{} { return nil }

// Opens returns nil.
func (NoShortcut) Opens() *protocol.Over { return nil }

// Saw does nothing.
func (NoShortcut) Saw(*clientv3.Event) {}

// Failed returns false.
func (NoShortcut) Failed(*protocol.Over, error) bool { return false }

// Took does nothing.
func (NoShortcut) Took(*protocol.Over, int64) {}

// Leave does nothing.
func (NoShortcut) Leave() {}
