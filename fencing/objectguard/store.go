package objectguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Store is a bucket, or a part of one, with conditional writes. [Memory] is one
// for tests.
//
// It must be safe for concurrent use, and:
//
//   - read what was written: a Read that begins after a write has ended answers
//     with that write or a later one (S3 since December 2020, GCS and Azure
//     always; not through a cache, nor from a replicated bucket);
//   - judge the condition and carry the write out in one step;
//   - change the version with every change of the content, at least. Versions are
//     not empty.
//
// Where only the first fails no late write gets through, but more outcomes are
// unknown, and Admit may let an older owner pass. Where one of the others fails
// nothing is guarded: some servers and proxies take If-Match and ignore it. Try
// yours, with package fencetest.
type Store interface {
	// Read returns the whole object and its version. The caller may keep and
	// change the data. If there is none the error matches ErrNotFound; any other
	// error means that it is not known.
	Read(ctx context.Context, name string) (data []byte, version string, err error)
	// Create writes the object if there is none: with "If-None-Match: *" in S3
	// and Azure, "ifGenerationMatch=0" in GCS. It returns the version that it
	// made. It must not keep or change data.
	//
	// If the store says that there is one the error matches ErrConflict. Whether
	// that is another's, or its own, left by a try whose reply was lost, Create
	// need not find out: clients that try again by themselves are welcome. An
	// error matches ErrRefused if the store has certainly not written, and will
	// not: the caller has no permission, or the object is too large. Any other
	// error means that it is not known.
	Create(ctx context.Context, name string, data []byte) (version string, err error)
	// Replace writes the object if it still is at the version: with "If-Match" in
	// S3 and Azure, "ifGenerationMatch" in GCS. It is like Create otherwise. An
	// object that is gone is a conflict, too, and so is S3's answer 409,
	// ConditionalRequestConflict, with which it keeps two writes apart that come
	// at once.
	Replace(ctx context.Context, name string, data []byte, version string) (newVersion string, err error)
}

// What a Store says. Wrap them; they are tested with errors.Is.
var (
	// ErrNotFound says that there is no object of that name, or, from
	// Object.Read, none with data.
	ErrNotFound = errors.New("objectguard: object not found")
	// ErrConflict says that the condition of a write did not hold. Methods of
	// Object and Gate return it when others were quicker each time they tried:
	// nothing was done, try again.
	ErrConflict = errors.New("objectguard: object changed meanwhile")
	// ErrRefused says that the store has not written, and why.
	ErrRefused = errors.New("objectguard: store refused")
)

// What Object and Gate say beside the errors of package fencing and of the store.
var (
	// ErrUnfenced says that the object has content that this package did not
	// write. It is not touched, since nobody knows what its newest fence was.
	ErrUnfenced = errors.New("objectguard: object was written without a fence")
	// ErrOtherKey says that the object belongs to owners of another key than the
	// token's: fences of two keys do not compare.
	ErrOtherKey = errors.New("objectguard: object belongs to another key")
	// ErrInvalid says that a store or a name is not fit for use.
	ErrInvalid = errors.New("objectguard: invalid argument")
)

// maxNameBytes is the longest name that S3 and GCS take.
const maxNameBytes = 1024

// valid looks at what a constructor was given. spare is how many bytes come
// behind the name.
func valid(store Store, what, name string, spare int) error {
	switch {
	case store == nil:
		return fmt.Errorf("%w: the store is nil", ErrInvalid)
	case name == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(name)+spare > maxNameBytes:
		return fmt.Errorf("%w: the %s %.40q… has %d bytes, the limit is %d", ErrInvalid, what, name, len(name), maxNameBytes-spare)
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: the %s %.80q is not UTF-8 without control characters", ErrInvalid, what, name)
	}
	return nil
}
