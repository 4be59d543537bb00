package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/google/uuid"
)

// An Item is put into a queue by Enqueue. NewItem makes one.
type Item struct {
	id       string
	given    bool   // the caller chose the id
	seq      string // of when it was made, and then of when it was enqueued
	topic    string
	key      string // the partition key
	payload  []byte
	priority int
	vesting  time.Time     // zero: when it is enqueued
	delay    time.Duration // from when it is enqueued
	max      int           // attempts; 0: the queue's
	overDead bool
	unique   uniqueness
	debounce debouncing
}

// ItemOption describes an item.
type ItemOption interface{ apply(*Item) }

type itemOption = setting[Item]

// setting is an option: what it changes.
type setting[T any] func(*T)

func (f setting[T]) apply(to *T) { f(to) }

// chosen returns what the options make of a value. Nil ones change nothing.
func chosen[T any, O interface{ apply(*T) }](of T, opts []O) T {
	for _, opt := range opts {
		if any(opt) != nil {
			opt.apply(&of)
		}
	}
	return of
}

// ID gives the item an id. A queue accepts an id once: enqueuing the id again does
// nothing while the item is in the queue, and for Config.Retention after it was completed.
// While the item is a dead letter, it is an error; see OverDead. Printable
// UTF-8 of up to 512 bytes. Default: a new UUID.
func ID(id string) ItemOption { return itemOption(func(it *Item) { it.id, it.given = id, true }) }

// Topic names the kind of work. It selects the handler of WorkerConfig.Handlers. The rules
// are those of Config.Name. Default: none.
func Topic(topic string) ItemOption { return itemOption(func(it *Item) { it.topic = topic }) }

// PartitionKey gives the item a partition key, such as the name of a tenant: at most Config.KeyLimit
// items of one key are under way at the same time. Their turn comes in the order of the queue: by
// priority, vesting time, and when they were enqueued. Items that wait for their turn do not delay
// those of other keys. Printable UTF-8 of up to 200 bytes. Default: none, so no such limit.
//
// With a KeyLimit of 1 the items of a key are handled one after the other. One that failed, or for
// which Snooze was called, keeps its turn, and the others wait until it is completed, cancelled or
// a dead letter. To let them pass, complete the item together with [Queue.Op], which enqueues
// another one with a Delay.
func PartitionKey(key string) ItemOption { return itemOption(func(it *Item) { it.key = key }) }

// PriorityOption is an option of items and of Fail.
type PriorityOption interface {
	ItemOption
	FailOption
}

type priorityOption int

func (p priorityOption) apply(it *Item)           { it.priority = int(p) }
func (p priorityOption) applyFail(o *failOptions) { o.priority = (*int)(&p) }

// Priority sets the item's priority: any number, 0 and negative ones included. Default of
// items: 100. Fail keeps the item's priority by default.
func Priority(p int) PriorityOption { return priorityOption(p) }

// At makes the item visible at t and not before. An earlier t than now puts the item before those of
// its priority that vested later. With Config.Aging the item has waited since t.
func At(t time.Time) ItemOption { return itemOption(func(it *Item) { it.vesting, it.delay = t, 0 }) }

// Delay makes the item visible d after it is enqueued.
func Delay(d time.Duration) ItemOption {
	return itemOption(func(it *Item) { it.vesting, it.delay = time.Time{}, d })
}

// MaxAttempts sets the number of attempts after which the item becomes a dead letter.
// Default: Config.MaxAttempts of the queue.
func MaxAttempts(n int) ItemOption { return itemOption(func(it *Item) { it.max = n }) }

// OverDead makes an enqueue replace a dead letter of the item's id, with its history, by
// the item. This is one transaction. It needs no room in a queue with MaxWaiting.
func OverDead() ItemOption { return itemOption(func(it *Item) { it.overDead = true }) }

// NewItem returns an item with the payload, which must not be changed afterwards. An enqueue
// refuses a payload larger than MaxPayloadBytes.
func NewItem(payload []byte, opts ...ItemOption) Item {
	it := chosen(Item{payload: payload, priority: item.DefaultPriority, seq: newSeq()}, opts)
	if it.debounce.asked {
		it.vesting, it.delay = time.Time{}, it.debounce.quiet
	}
	switch {
	case it.unique.asked:
		it.id = it.uniqueID()
	case !it.given:
		it.id = it.seq
	}
	return it
}

// newSeq returns a version 7 UUID, which sorts by when it was made.
func newSeq() string { return strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "") }

// ID returns the item's id.
func (it Item) ID() string { return it.id }

func (it Item) check() error {
	switch {
	case it.seq == "":
		return errors.New("the zero Item; make items with NewItem")
	case !validID(it.id):
		return errInvalidID(it.id)
	case len(it.payload) > MaxPayloadBytes:
		return errtext.Wrap(fmt.Sprintf("item %q: payload of %d bytes, the limit is %d; store it elsewhere and enqueue where it is", it.id, len(it.payload), MaxPayloadBytes), etcdclaims.ErrTooLarge)
	case it.key != "" && !keyspace.Printable(it.key) || len(it.key) > maxKeyBytes:
		text := fmt.Sprintf("item %q: partition key %.100q must be printable UTF-8 of up to %d bytes", it.id, it.key, maxKeyBytes)
		return errtext.Wrap(text, etcdclaims.ErrInvalidKey)
	case it.unique.asked && it.given:
		return fmt.Errorf("item %q: the options ID and Unique exclude each other", it.id)
	case it.unique.period < 0:
		return fmt.Errorf("item %q: period %v of Unique is negative", it.id, it.unique.period)
	case it.delay < 0:
		return fmt.Errorf("item %q: delay %v is negative", it.id, it.delay)
	case it.max < 0:
		return fmt.Errorf("item %q: MaxAttempts %d is negative", it.id, it.max)
	case !it.vesting.IsZero() && (it.vesting.Year() < 1970 || it.vesting.Year() > 2261):
		return fmt.Errorf("item %q: vesting time %v is not between 1970 and 2261", it.id, it.vesting)
	}
	if it.topic != "" {
		if err := claimerr.CheckName("topic", it.topic); err != nil {
			return err
		}
	}
	return it.checkDebounce()
}

func validID(id string) bool {
	return keyspace.Printable(id) && len(id) <= maxIDBytes
}

func errInvalidID(id string) error {
	return errtext.Wrap(fmt.Sprintf("id %.100q must be printable UTF-8 of 1 to %d bytes", id, maxIDBytes), etcdclaims.ErrInvalidKey)
}

// size bounds what a request needs to enqueue the item.
func (it Item) size() int { return len(it.payload)*4/3 + 4*len(it.id) + 2*len(it.key) + 1024 }

// uniqueness is what the option Unique asks for.
type uniqueness struct {
	asked  bool
	period time.Duration
	args   []string
	made   time.Time // when NewItem was called
}

// Unique gives the item an id that is made of its topic and of args: an item with the same ones is enqueued
// once per period. Without args, the payload counts. Items with another period have other ids. The rules are
// those of ID, also for dead letters. Periods are counted from the Unix epoch in UTC: a period of 24 hours
// begins at midnight. A period of zero means: once while the item is in the queue, and for Config.Retention
// after it was completed.
//
// The period of an item is the one in which NewItem is called, by the wall clock of that process. So the same
// Item can be enqueued again after a lost reply, also in the next period. Two processes whose clocks
// differ can enqueue an item each around the end of a period.
//
// Enqueue and Op refuse an item whose period is longer than Config.Retention of their Queue. Such an item would be
// forgotten before its period ends.
func Unique(period time.Duration, args ...string) ItemOption {
	return itemOption(func(it *Item) {
		it.unique = uniqueness{asked: true, period: period, args: args, made: clock.Clock{}.Time()}
	})
}

// uniqueID returns the id of an item with the option Unique.
func (it Item) uniqueID() string {
	args := it.unique.args
	if len(args) == 0 {
		args = []string{string(it.payload)}
	}
	hash := sha256.New()
	head := []string{it.topic, it.unique.period.String(), strconv.Itoa(len(it.unique.args))} // a payload is no argument
	for _, arg := range append(head, args...) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(arg)))) // "a", "bc" is not "ab", "c"
		hash.Write([]byte(arg))
	}
	id := "unique/" + hex.EncodeToString(hash.Sum(nil)[:16])
	if it.unique.period <= 0 {
		return id
	}
	begin := it.unique.made.Add(-time.Duration(it.unique.made.UnixNano() % int64(it.unique.period)))
	return id + "/" + begin.UTC().Format(time.RFC3339Nano)
}

// debouncing is what the option Debounce asks for.
type debouncing struct {
	asked       bool
	quiet, most time.Duration
}

// Debounce delays the item until its id has not been enqueued for quiet. While the item has not vested, each
// enqueue of the id with this option replaces its payload. The item then becomes visible quiet later, but at most
// the time most after it was first enqueued. Topic, priority and attempts stay. Enqueue returns true if it
// added the item or replaced its payload. This is one transaction; if two enqueues come at the same time, one
// of the payloads remains.
//
// Enqueue returns false, and the item is handled with an earlier payload, if the item has vested, a worker has
// it, or it waits for another attempt. So it does while the id of a completed item is remembered: give a queue
// of such items a negative Config.Retention. While the item has not vested, another PartitionKey is an error.
// Times are those of the wall clocks of the processes that enqueue.
//
// The option needs ID or Unique. It takes the place of Delay and At. Both times are more than zero, and most is not
// less than quiet. Op ignores the option for an item that is there.
func Debounce(quiet, most time.Duration) ItemOption {
	return itemOption(func(it *Item) {
		it.debounce = debouncing{asked: true, quiet: quiet, most: most}
	})
}

func (it Item) checkDebounce() error {
	switch d := it.debounce; {
	case !d.asked:
	case d.quiet <= 0 || d.most < d.quiet:
		return fmt.Errorf("item %q: Debounce(%v, %v) is not of two times above zero, the second not less than the first",
			it.id, d.quiet, d.most)
	case !it.given && !it.unique.asked:
		return errors.New("the option Debounce needs ID or Unique")
	}
	return nil
}

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

// FailOption sets how long a failed item waits, or its priority from then on.
type FailOption interface{ applyFail(*failOptions) }

type failOptions struct {
	backoff  etcdclaims.Backoff
	priority *int // nil: the item's
}

type failOption func(*failOptions)

func (f failOption) applyFail(o *failOptions) { f(o) }

// Backoff makes the item wait for as long as f returns for the number of the attempt, 1 being
// the first. etcdclaims.ExponentialBackoff makes such a function. Nil means Config.Backoff,
// which is the default.
func Backoff(f etcdclaims.Backoff) FailOption {
	return failOption(func(o *failOptions) {
		if f != nil {
			o.backoff = f
		}
	})
}

// infoOf returns what the content shows: all of an item that was completed.
func infoOf(id string, c item.Content) Info {
	i := Info{ID: id, Topic: c.Topic, Payload: c.Payload, Enqueued: c.Enqueued, PartitionKey: c.Key}
	if d := c.Done; d != nil {
		i.Where, i.Owner, i.Fence, i.Since, i.Attempts, i.Result = Completed, d.Owner, d.Fence, d.At, d.Attempt, d.Result
	}
	return i
}
