package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
)

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
