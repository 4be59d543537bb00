package sched

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// keys knows where things are in etcd. Names stand there as digests, so that
// none can be part of another's subtree, and the kind stands before the job, so
// that one range has all that is of a kind:
//
//	spec/<job>              what the job is
//	high/<job>              its high-water mark
//	past/<job>/<time>-<id>  what became of its ticks
//	fail/<job>              how many runs failed in a row
//	now/ask/<job>/<uuid>   what somebody asks of the owner
//	now/paused/<job>       that it is paused, by whom and why
//	now/cancel/<job>       that what runs now shall end
//	now/ready/<job>/<id>   a tick that is admitted and not begun
//	now/run/<job>/<id>     a tick that was begun
//
// Backfills have directories of their own beside the job's, so that they do not
// count as ticks that wait. All that is under way has one prefix, for one watch.
type keys struct{ root string }

func newKeys(prefix, group string) keys {
	return keys{prefix + "sched/" + digest(group) + "/"}
}

func (k keys) specs() string                   { return k.root + "spec/" }
func (k keys) spec(job string) string          { return k.specs() + digest(job) }
func (k keys) highs() string                   { return k.root + "high/" }
func (k keys) high(job string) string          { return k.highs() + digest(job) }
func (k keys) past(job string) string          { return k.root + "past/" + digest(job) + "/" }
func (k keys) fail(job string) string          { return k.root + "fail/" + digest(job) }
func (k keys) now() string                     { return k.root + "now/" }
func (k keys) asks() string                    { return k.now() + "ask/" }
func (k keys) asksOf(job string) string        { return k.asks() + digest(job) + "/" }
func (k keys) paused(job string) string        { return k.now() + "paused/" + digest(job) }
func (k keys) cancels() string                 { return k.now() + "cancel/" }
func (k keys) cancel(job string) string        { return k.cancels() + digest(job) }
func (k keys) readies() string                 { return k.now() + "ready/" }
func (k keys) runs() string                    { return k.now() + "run/" }
func (k keys) ready(job, id string) string     { return k.readies() + place(job, id) }
func (k keys) run(job, id string) string       { return k.runs() + place(job, id) }
func (k keys) readyOf(job string) string       { return k.readies() + digest(job) + "/" }
func (k keys) runOf(job string) string         { return k.runs() + digest(job) + "/" }
func (k keys) entry(job string, e past) string { return k.past(job) + e.at() }

// backfills and backfilling are what waits and what runs of the job's backfills.
func (k keys) backfills(job string) string   { return k.readies() + digest(job) + ".backfill/" }
func (k keys) backfilling(job string) string { return k.runs() + digest(job) + ".backfill/" }

// place is a tick below ready/ and run/.
func place(job, id string) string {
	if isBackfill(id) {
		return digest(job) + ".backfill/" + id
	}
	return digest(job) + "/" + id
}

// digest is of fixed length, and so no part of another key.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// The keys of claims. A group has no slash in its name, and what follows it is
// told apart by its first word, so no two of these are the same.

func ownerKey(group string) string { return "sched/" + group + "/owner" }

func opKey(group, id string) string { return "sched/" + group + "/op/" + id }

func jobKey(group, job string) string { return "sched/" + group + "/job/" + job }

// claimKey is claimed by a run: that of the job where its runs exclude each other,
// and else one of the tick's own.
func claimKey(group, job, id string, exclusive bool) string {
	if exclusive {
		return jobKey(group, job)
	}
	return "sched/" + group + "/run/" + strings.ReplaceAll(id, "/", "-") + "/" + job
}

// enc writes an instant so that the order of bytes, by which etcd compares, is
// that of time.
func enc(t time.Time) string { return fmt.Sprintf("%020d", max(t.UnixNano(), 0)) }

func dec(s []byte) (time.Time, error) {
	var n int64
	if len(s) != 20 {
		return time.Time{}, fmt.Errorf("%q is no time of 20 digits", s)
	}
	if _, err := fmt.Sscanf(string(s), "%020d", &n); err != nil {
		return time.Time{}, fmt.Errorf("%q is no time of 20 digits: %w", s, err)
	}
	return time.Unix(0, n).UTC(), nil
}
