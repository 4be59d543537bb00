package objectguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/fencing"
)

// Object is one guarded object. It refuses a write once a newer owner of the
// token's key has written or sealed the object. The first token decides to which
// key the object belongs.
//
// All methods are safe for concurrent use, within and across processes.
// Concurrent writes of one owner are carried out one after another, in any order.
// A write that lost against another writer, or whose reply was lost, is sent again
// after a random pause. That happens a limited number of times, until ctx ends. So give
// ctx a deadline, and the [Store] a timeout for each request.
//
// Methods with a token return the errors of [fencing.Gate],
// ErrForeign, ErrConflict, or the store's error. Only after an error that
// matches [fencing.ErrUnknown] may the write have been done.
type Object struct {
	store Store
	name  string

	mu   sync.Mutex
	last *state // the last write of this process, without the data, or nil
}

// state is the object as it was read or written. The version is empty if the
// object is absent.
type state struct {
	version string
	envelope
}

// New returns the Object with the name, which has at most 1024 bytes. It sends
// nothing. It returns an error if store is nil or the name cannot be used.
//
// Keep the Object: it remembers its last write, up to 1 KB without the data, so
// that the next Write of the same owner takes one request.
func New(store Store, name string) (*Object, error) {
	if err := valid(store, "name", name, 0); err != nil {
		return nil, err
	}
	return &Object{store: store, name: name}, nil
}

// Read returns the object's data, and the token of the owner that wrote or sealed the
// object last. The error matches ErrNotFound if the object has no data, because it was
// never written, or was deleted. The token is returned even then, if there is one. Read
// needs no token. The data may be out of date when they are used.
func (o *Object) Read(ctx context.Context) (data []byte, t fencing.Token, err error) {
	now, err := o.read(ctx)
	if err != nil {
		return nil, fencing.Token{}, err
	}
	if !now.filled {
		return nil, now.token, o.errorf("%w", ErrNotFound)
	}
	return now.data, now.token, nil
}

// Write replaces the object's data. It takes one request if the same owner made
// the last write through this Object, and two otherwise.
func (o *Object) Write(ctx context.Context, t fencing.Token, data []byte) error {
	return o.change(ctx, t, o.recall(t), func(envelope) (envelope, error) {
		return envelope{filled: true, data: data}, nil
	})
}

// Update replaces the object's data by what edit returns. edit is called with the data,
// or with nil if the object has no data. It may change and keep them. It is called
// again whenever another writer wins, so it should have no side effects. If edit
// returns an error, Update returns it unchanged, and writes nothing.
func (o *Object) Update(ctx context.Context, t fencing.Token, edit func(old []byte) ([]byte, error)) error {
	return o.change(ctx, t, nil, func(was envelope) (envelope, error) {
		old := was.data
		if was.filled && old == nil {
			old = []byte{}
		}
		data, err := edit(old)
		return envelope{filled: true, data: data}, err
	})
}

// Delete removes the data. The object and its fence remain, because otherwise a
// former owner could create the object again. Deleting an object without data
// seals it.
func (o *Object) Delete(ctx context.Context, t fencing.Token) error {
	return o.change(ctx, t, o.recall(t), func(envelope) (envelope, error) { return envelope{}, nil })
}

// Admit seals the object: if t is newer than the object's token, it replaces that
// token, and the data remain. From then on every older owner is refused. If the
// object is absent, Admit creates it without data. Admit makes Object a
// [fencing.Gate].
//
// A new owner seals all objects of its key before it reads what the previous
// owner left; see [fencing.Seal].
func (o *Object) Admit(ctx context.Context, t fencing.Token) error {
	return o.change(ctx, t, nil, func(was envelope) (envelope, error) {
		if was.token == t {
			return envelope{}, errNothingToDo
		}
		return was, nil
	})
}

// recall returns the last write of this process if it was under the same token. A
// refusal must not rest on memory. The outcome of a suspended owner's write can
// be found only if the write follows one of its own.
func (o *Object) recall(t fencing.Token) *state {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil || o.last.token != t {
		return nil
	}
	return o.last
}

// weak reports whether a version is an ETag that two contents can share (RFC 9110, 8.8.1).
func weak(version string) bool { return strings.HasPrefix(version, "W/") }

// wrote remembers the last write, or forgets it if no write can follow the version.
func (o *Object) wrote(version string, e envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = nil
	if version != "" && !weak(version) {
		e.data = nil
		o.last = &state{version, e}
	}
}

// read returns the state of the object: the zero state if the object is absent.
func (o *Object) read(ctx context.Context) (*state, error) {
	content, version, err := o.store.Read(ctx, o.name)
	switch {
	case errors.Is(err, ErrNotFound):
		return &state{}, nil
	case err != nil:
		return nil, o.errorf("read: %w", err)
	case version == "":
		return nil, o.errorf("%w: the store returned no version", errInvalid)
	case weak(version):
		return nil, o.errorf("%w: the store returned the weak version %.40q, which no If-Match matches; "+
			"reach it without the proxy that compresses or changes its replies", errInvalid, version)
	}
	e, err := decode(content)
	if err != nil {
		return nil, o.errorf("%w: %w; keep guarded objects under names that nothing else writes; "+
			"restore an earlier version of this one, or remove it once no former owner is running", ErrForeign, err)
	}
	return &state{version, e}, nil
}

// judge returns why t may not follow the present state, or nil.
func (o *Object) judge(was *state, t fencing.Token) error {
	switch {
	case was.version == "":
		return nil
	case was.token.Key != t.Key:
		return o.errorf("%w: its token is %v, the caller's is %v; use different objects for different keys", ErrForeign, was.token, t)
	case was.token.Fence > t.Fence:
		return o.errorf("%w", &fencing.StaleError{Token: t, Newest: was.token.Fence})
	}
	return nil
}

func (o *Object) errorf(format string, args ...any) error {
	return fmt.Errorf("objectguard: object %q: %w", o.name, fmt.Errorf(format, args...))
}
