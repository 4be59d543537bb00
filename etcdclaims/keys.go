package etcdclaims

import (
	"fmt"
	"strconv"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// layout knows where things are. A user's key is the end of an etcd key, or a digest of
// fixed length where other keys are below it. So no user key is ever read as part of
// another's subtree.
type layout struct {
	prefix   string // ends in a slash
	instance string
}

func (l layout) own(key string) string  { return keyspace.Own(l.prefix, key) }
func (l layout) note(key string) string { return l.prefix + "note/" + key }
func (l layout) work(key string) string { return l.prefix + "work/" + key }
func (l layout) epoch() string          { return keyspace.EpochKey(l.prefix) }

// waiting is the prefix of everyone in line for the key.
func (l layout) waiting(key string) string         { return l.prefix + "wait/" + keyspace.Digest(key) + "/" }
func (l layout) lines() string                     { return l.prefix + "wait/" }
func (l layout) waiter(key, attempt string) string { return l.waiting(key) + attempt }
func (l layout) sessions() string                  { return l.prefix + "session/" }
func (l layout) session(instance string) string    { return l.sessions() + instance + "/" }

func (l layout) live(n int64) string {
	return l.sentinels(l.instance) + strconv.FormatInt(n, 10)
}

// sentinels is the prefix of the sentinels of a client.
func (l layout) sentinels(instance string) string { return l.session(instance) + "live/" }

func (l layout) evict(instance, claim string) string { return l.session(instance) + "evict/" + claim }

// ask is the key by which one client asks another whether it lives.
func (l layout) ask(of, by string) string { return l.session(of) + "ask/" + by }

// notice is the key of a handoff notice: the waiter was handed the key.
func (l layout) notice(instance, claim string) string { return l.session(instance) + "won/" + claim }

// notices is the prefix of all notices to waiters of this client.
func (l layout) notices() string { return l.session(l.instance) + "won/" }

func (l layout) void(attempt string) string { return l.prefix + "void/" + attempt }

// reserved reports whether an operation on [key, end) would touch keys of this package.
func (l layout) reserved(key, end string) bool { return keyspace.Reserved(l.prefix, key, end) }

// rangeEnd is the first key after all that have the prefix.
func rangeEnd(prefix string) string { return keyspace.RangeEnd(prefix) }

// checkKey returns why a call on a key is refused, or nil.
func (c *Client) checkKey(key string) error {
	if err := c.refusal(); err != nil {
		return err
	}
	return validKey(key)
}

// checkClaimed is checkKey for calls that claim the key, or keep something in the place of its
// claim.
func (c *Client) checkClaimed(key string) error {
	if err := c.checkKey(key); err != nil {
		return err
	}
	return foreignKey(key)
}

// foreignKey returns why a key is not for callers to claim, or nil.
func foreignKey(key string) error {
	if why := keyspace.Unclaimable(key); why != "" {
		return fmt.Errorf("%w: %s", ErrInvalidKey, why)
	}
	return nil
}

// checkKey returns why the key is invalid or not for the caller to claim, or nil.
func (o *acquireOptions) checkKey(key string) error {
	if err := validKey(key); err != nil || o.ownKey {
		return err
	}
	return foreignKey(key)
}

// validKey returns why a key is invalid, or nil.
func validKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %.40q… has %d bytes, the limit is %d: use a digest of it", ErrInvalidKey, key, len(key), MaxKeyBytes)
	case !printable(key):
		return fmt.Errorf("%w: %q is not UTF-8 without control characters", ErrInvalidKey, key)
	}
	return nil
}
