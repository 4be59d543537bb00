package queue

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"go.uber.org/zap"
)

// MaxPayloadBytes is the largest payload of an item. Keep payloads small: put large data
// elsewhere and enqueue where it is.
const MaxPayloadBytes = 1 << 20

// MaxResultBytes is the largest result of an item. Keep results small: put a large one elsewhere,
// with an operation of Complete, and set where it is.
const MaxResultBytes = 64 << 10

// Limits and defaults, as the comments of Config, the options and Delivery state them.
const (
	maxIDBytes  = 512
	maxKeyBytes = 200
	mostPerKey  = 1000
	mostTaken   = 10_000

	defaultTTL           = 30 * time.Second
	defaultRetention     = time.Hour
	defaultSpaceReserve  = 5 // percent
	defaultDeadRetention = 30 * 24 * time.Hour
)

// Errors that calls return besides those of package etcdclaims. Test with errors.Is.
var (
	// ErrFull is returned by an enqueue while Config.MaxWaiting items wait, or while etcd's
	// database is nearly as large as its quota allows, see Config.SpaceReserve. The text names
	// which.
	ErrFull = errors.New("queue is full")
	// ErrNotFound is returned if there is no such item, because it was completed,
	// cancelled or never enqueued. Open and Reconfigure return it if there is no such queue.
	ErrNotFound = errors.New("no such item")
	// ErrDead is returned by Wait if the item is a dead letter. The text has why.
	ErrDead = errors.New("item is a dead letter")
	// ErrTaken is returned by operations on waiting items if a worker has the item.
	ErrTaken = errors.New("item is taken by a worker")
	// ErrExpired is returned by verbs of a delivery whose lease expired by the local clock of this
	// process, or whose session ended. Nothing was changed. It matches etcdclaims.ErrLost.
	ErrExpired error = &lostError{"item lease expired"}
	// ErrSuperseded is returned by verbs of a delivery whose item another worker has, or
	// that waits again, is a dead letter or was deleted by hand. Nothing was changed. It
	// matches etcdclaims.ErrLost.
	ErrSuperseded error = &lostError{"item lease superseded"}
	// ErrCompleted is returned by verbs of a delivery whose item was completed by another
	// process that had its handle. It matches etcdclaims.ErrLost.
	ErrCompleted error = &lostError{"item was completed by another"}
	// ErrCancelled is returned by verbs of a delivery whose item Cancel has removed, and is the cause with
	// which its context ends. The text has who cancelled it, and why. Nothing was changed. It matches
	// etcdclaims.ErrLost.
	ErrCancelled error = &lostError{"item was cancelled"}
	// ErrConfig is returned if the queue was made with another order or other bounds
	// than those of the Config.
	ErrConfig = errors.New("queue has another configuration")
	// ErrInUse is returned by Reconfigure while a process uses the queue, or its items keep
	// the order from being changed.
	ErrInUse = errors.New("queue is in use")
	// ErrUnchanged is returned by Pause if the queue is paused already, and by Resume if it is
	// not paused.
	ErrUnchanged = errors.New("nothing to change")

	errForgets   = errors.New("Config.Retention is negative: completed items and their results are not kept")
	errNearQuota = errtext.Namesake("etcd's database is nearly full", ErrFull)
	errNoQueue   = errtext.Namesake("no such queue", ErrNotFound)
)

// lostError is a way to lose an item.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

// Is matches etcdclaims.ErrLost.
func (e *lostError) Is(target error) bool { return target == etcdclaims.ErrLost }

// closedError ends the leases of a Queue that is closed by this process. Its session ends with
// it, so it is an ErrExpired, too.
type closedError struct{}

var errDeliveryClosed error = closedError{}

func (closedError) Error() string { return "queue closed, its items are given back" }

func (closedError) Unwrap() []error { return []error{ErrExpired, etcdclaims.ErrClosed} }

// Config describes a queue. Every process that uses the queue must give the same
// Name, HigherFirst, Aging, MaxTaken, MaxWaiting and KeyLimit; the other fields are its own.
type Config struct {
	// Name names the queue under the prefix of the client. Required: printable
	// UTF-8 without slashes, up to 128 bytes.
	Name string
	// HigherFirst makes greater priorities come first. Default: lower first.
	HigherFirst bool
	// Aging is how long a visible item waits to rise by one priority. With one minute, an item of
	// priority 5 that has waited for more than five minutes comes before a new one of priority 0. So
	// a steady stream of urgent items keeps no other from being claimed. Waiting counts from the
	// vesting time, by the clock of the process that enqueued the item. An item that is
	// enqueued with At in the past has waited since then. A failure, Snooze and a redrive set the
	// vesting time anew. Choose it so that the priorities of the queue, times Aging, are less than
	// 200 years apart: beyond that they do not differ. At least 1 ms. Default: items do not age,
	// and an item waits until no more urgent one is visible.
	Aging time.Duration
	// MaxTaken is how many items workers may have at the same time, across all
	// processes: a concurrency limit. At most 10,000. Default: no limit.
	MaxTaken int
	// MaxWaiting is how many items may wait, vested or not. A full queue refuses
	// enqueues with ErrFull. Items that come back from workers or dead letters, and
	// those of Op, wait in any case. Enqueues into a queue with this limit exclude
	// each other, and each counts the items that wait, for which etcd also visits those that
	// were completed since it last compacted. Both make them slower. Default: no limit.
	MaxWaiting int
	// KeyLimit is how many items of one partition key can be under way at the same time, across
	// all processes; see PartitionKey. An item is under way from when its turn comes until it is
	// completed, cancelled or a dead letter. So it is while it waits after a failure or for
	// Snooze: the items behind it wait as well. At most 1,000. Default: 1, which makes the items
	// of one key a FIFO group.
	KeyLimit int

	// TTL is how long the lease of a claimed item lasts without a renewal. The
	// process renews it for as long as the worker has the item. The items of a dead worker
	// are visible again within the TTL plus one second. At least etcdclaims.MinTTL, unless
	// the client allows shorter ones. Default: 30 s.
	TTL time.Duration
	// MaxAttempts is the number of attempts after which an item becomes a dead letter.
	// The option MaxAttempts sets another number for one item. Default:
	// etcdclaims.DefaultMaxAttempts.
	MaxAttempts int
	// Backoff returns how long an item waits after its attempt-th failure, 1 being
	// the first. It must be safe for concurrent use and keep no state. Default: 1 s,
	// doubling up to 60 s; the delay is random between half and all of that.
	Backoff etcdclaims.Backoff
	// Retention is how long the id of a completed item is remembered, so that enqueuing
	// it again does nothing. It applies to items with the option ID, and to those with a result, which
	// is kept as long. At least 2 s, and at most 100 years; more counts as that. Negative: completed
	// items are not remembered, and can have no result. Default: 1 h.
	Retention time.Duration
	// DeadRetention is how long dead letters are kept. They are kept longer after a time in
	// which no process claimed. Processes that live for one call each may never remove
	// them; use Purge. Negative: for ever. Default: 30 days.
	DeadRetention time.Duration
	// SpaceReserve is how much of its quota etcd must have free for an enqueue, in
	// percent. With less, Enqueue returns ErrFull, so that claims and verbs still
	// work. Free pages within the database count as free. While items are enqueued, the
	// client asks etcd every ten seconds in the background. It needs no permission for
	// that. The reserve is a precaution: many large items can use it up between two
	// checks, and Op does not check it. etcd before 3.6 does not report its quota, so
	// there is no reserve. Negative: no reserve. At most 50. Default: 5.
	SpaceReserve int
	// Logger receives events that no caller would otherwise see. Errors: items that
	// became dead letters, handlers that panicked or do not stop. Warnings: attempts that
	// failed and are repeated, items that were lost, requests that fail. Default: the
	// Logger of the client.
	Logger *zap.Logger
}

func (cfg Config) withDefaults() (Config, error) {
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, etcdclaims.DefaultMaxAttempts)
	if cfg.Backoff == nil {
		cfg.Backoff = etcdclaims.ExponentialBackoff(time.Second, time.Minute)
	}
	cfg.KeyLimit = cmp.Or(cfg.KeyLimit, 1)
	cfg.Retention = cmp.Or(cfg.Retention, defaultRetention)
	cfg.SpaceReserve = cmp.Or(cfg.SpaceReserve, defaultSpaceReserve)
	cfg.DeadRetention = cmp.Or(cfg.DeadRetention, defaultDeadRetention)
	if err := claimerr.CheckName("queue", cfg.Name); err != nil {
		return cfg, err
	}
	switch {
	case cfg.Aging != 0 && cfg.Aging < time.Millisecond:
		return cfg, fmt.Errorf("queue %q: Aging %v is below 1ms", cfg.Name, cfg.Aging)
	case cfg.MaxTaken < 0 || cfg.MaxTaken > mostTaken:
		return cfg, fmt.Errorf("queue %q: MaxTaken %d is not between 0 and %d", cfg.Name, cfg.MaxTaken, mostTaken)
	case cfg.MaxWaiting < 0:
		return cfg, fmt.Errorf("queue %q: MaxWaiting %d is negative", cfg.Name, cfg.MaxWaiting)
	case cfg.KeyLimit < 0 || cfg.KeyLimit > mostPerKey:
		return cfg, fmt.Errorf("queue %q: KeyLimit %d is not between 0 and %d", cfg.Name, cfg.KeyLimit, mostPerKey)
	case cfg.MaxAttempts < 0:
		return cfg, fmt.Errorf("queue %q: MaxAttempts %d is negative", cfg.Name, cfg.MaxAttempts)
	case cfg.SpaceReserve > 50:
		return cfg, fmt.Errorf("queue %q: SpaceReserve %d is more than 50 percent", cfg.Name, cfg.SpaceReserve)
	case cfg.Retention > 0 && cfg.Retention < 2*time.Second:
		return cfg, fmt.Errorf("queue %q: Retention %v is below 2s, the shortest lease of etcd; use a negative one to forget at once", cfg.Name, cfg.Retention)
	}
	return cfg, nil
}
