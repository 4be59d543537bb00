package objectguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Store is a bucket, or a part of one, with conditional writes. [Memory] is a
// Store for tests.
//
// A Store must be safe for concurrent use, and it must
//
//   - read its writes: a Read that begins after a write has ended returns that write or a
//     later one (true of S3 since December 2020, of GCS and Azure always; not through a
//     cache, nor from a replicated bucket);
//   - check the condition and carry out the write in one step;
//   - change the version whenever the content changes; a version is never empty, and an ETag
//     is neither weak (W/) nor changed on its way, as by a proxy that compresses.
//
// If only the first property is missing, no late write gets through, but more
// outcomes are unknown, and Admit may admit a former owner. If another property
// is missing, nothing is guarded: some servers and proxies accept If-Match and
// ignore it. Test yours with package storetest.
type Store interface {
	// Read returns the whole object and its version. The caller may keep and
	// change the data. The error matches ErrNotFound if there is no such object.
	// Any other error means that the state of the object is unknown.
	Read(ctx context.Context, name string) (data []byte, version string, err error)
	// Create writes the object if it does not exist, and returns the new version.
	// S3 and Azure do so with "If-None-Match: *", GCS with "ifGenerationMatch=0".
	// Create must not keep or change data.
	//
	// The error matches ErrConflict if the store reports that the object exists.
	// Create need not find out whether its own earlier attempt, whose reply was
	// lost, created the object. So the client may retry by itself.
	//
	// The error matches ErrRefused if the store has certainly not written, and
	// will not: for example, if the caller has no permission or the object is too
	// large. A refused retry does not show that the first attempt was refused. So
	// return ErrRefused only if the client has sent exactly one request. Any
	// other error means that the outcome is unknown.
	Create(ctx context.Context, name string, data []byte) (version string, err error)
	// Replace writes the object if it is still at the version, and returns the
	// new version. S3 and Azure do so with "If-Match", GCS with
	// "ifGenerationMatch". Otherwise it is like Create. An object that is gone is
	// a conflict too. So is S3's answer 409 ConditionalRequestConflict, which it
	// gives to concurrent writes.
	Replace(ctx context.Context, name string, data []byte, version string) (newVersion string, err error)
}

// The errors of a Store. A Store may wrap them: they are tested with errors.Is.
var (
	// ErrNotFound is returned when there is no such object. Object.Read also
	// returns it when the object has no data.
	ErrNotFound = errors.New("object not found")
	// ErrConflict is returned when the condition of a write did not hold. Methods
	// of Object and Gate return it when other writers won every attempt; nothing
	// was written, and the call may be repeated.
	ErrConflict = errors.New("object changed meanwhile")
	// ErrRefused is returned when the store has not written the object, and will
	// not.
	ErrRefused = errors.New("store refused")
)

// ErrForeign is returned when the object has content that this package did not write, or
// belongs to another key than the token's. The object is left as it is, because fences
// cannot be compared.
var ErrForeign = errors.New("foreign object")

// errInvalid is returned when a store, a name or a prefix cannot be used.
var errInvalid = errors.New("objectguard: invalid argument")

// maxNameBytes is the longest object name that S3 and GCS accept.
const maxNameBytes = 1024

// valid checks the arguments of a constructor. spare is how many bytes follow the
// name.
func valid(store Store, what, name string, spare int) error {
	switch {
	case store == nil:
		return fmt.Errorf("%w: the store is nil", errInvalid)
	case name == "":
		return fmt.Errorf("%w: the %s is empty", errInvalid, what)
	case len(name)+spare > maxNameBytes:
		return fmt.Errorf("%w: the %s %.40q… has %d bytes, the limit is %d", errInvalid, what, name, len(name), maxNameBytes-spare)
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: the %s %.80q is not UTF-8 without control characters", errInvalid, what, name)
	}
	return nil
}
