package tick

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"
)

// jitter returns how much later than nominal a tick of the job starts. The result is
// at least 0, less than limit, and less than the time until next, so that ticks keep
// their order. Next is the instant after nominal, or the zero Time if there is none. If
// these bounds leave no room, the result is 0.
//
// The jitter is a hash of job and nominal, so that all processes agree on it. SHA-256
// makes it uniform even for names and times that differ in one bit. It is not part of a
// tick's identity.
func jitter(job string, nominal time.Time, limit time.Duration, next time.Time) time.Duration {
	if !next.IsZero() {
		limit = min(limit, next.Sub(nominal))
	}
	if limit <= 0 {
		return 0
	}
	text := make([]byte, 0, len(job)+12)
	text = append(text, job...)
	text = binary.BigEndian.AppendUint64(text, uint64(nominal.Unix()))
	text = binary.BigEndian.AppendUint32(text, uint32(nominal.Nanosecond()))
	sum := sha256.Sum256(text)
	// The high half of the product scales the hash to the range, with a bias of
	// less than one in 2^64/limit.
	scaled, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), uint64(limit))
	return time.Duration(scaled)
}
