package queue

import (
	"errors"
	"fmt"
	"time"
)

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
