package objectguard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/fencing"
)

// Object is one guarded object: a write with a token is refused once the object
// was written or sealed by a newer owner of the token's key. The first token
// decides which key that is.
//
// All methods are safe for concurrent use, in this process and among many. Writes
// of one owner that come at once are carried out one after the other, in any
// order. Each sends again what others were quicker with, or whose reply was lost,
// with pauses of random length, until ctx ends, but not without end: so ctx
// should have a deadline, and [Store] its own timeout for a request.
//
// Methods with a token return the errors of [fencing.Gate], and ErrOtherKey,
// ErrUnfenced, ErrConflict, or what the store said. Only after one that matches
// [fencing.ErrUnknown] may anything have been done.
type Object struct {
	store Store
	name  string

	mu   sync.Mutex
	last *state // what this process wrote last, without the data; nil if it has not
}

// state is what the object was when it was read or written. An object that is
// absent has no version.
type state struct {
	version string
	envelope
}

// New returns the object of that name, of at most 1024 bytes. It sends nothing. It
// remembers what it wrote last, up to 1 KB but not the data, so that the same owner's next Write is
// one request: keep it.
func New(store Store, name string) (*Object, error) {
	if err := valid(store, "name", name, 0); err != nil {
		return nil, err
	}
	return &Object{store: store, name: name}, nil
}

// Content is what an object has.
type Content struct {
	Data []byte
	// Token is of the owner that wrote or sealed the object last.
	Token fencing.Token
}

// Read returns what the object has. The error matches ErrNotFound if it has no
// data: it was never written, or deleted; the Token is there nevertheless, if
// there was one. Anyone may read; what was read can be outdated by the time it
// is looked at.
func (o *Object) Read(ctx context.Context) (Content, error) {
	now, err := o.read(ctx)
	if err != nil {
		return Content{}, err
	}
	if !now.filled {
		return Content{Token: now.token}, o.errorf("%w", ErrNotFound)
	}
	return Content{Data: now.data, Token: now.token}, nil
}

// Write makes data the object's, whatever it had. If the owner wrote the object last,
// with this Object, it is one request, else two.
func (o *Object) Write(ctx context.Context, t fencing.Token, data []byte) error {
	return o.change(ctx, t, o.recall(t), func(envelope) (envelope, error) {
		return envelope{filled: true, data: data}, nil
	})
}

// Update makes what edit returns the object's data. edit is given the data, nil if
// there are none, and may change and keep them. It is called again whenever others
// were quicker, so it should have no effects of its own. Its error is returned as
// it is, and nothing is written.
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

// Delete takes the data away. The object stays, with its fence: else a late owner
// could write it anew. To delete what has no data is to seal it.
func (o *Object) Delete(ctx context.Context, t fencing.Token) error {
	return o.change(ctx, t, o.recall(t), func(envelope) (envelope, error) { return envelope{}, nil })
}

// Admit seals the object, and makes Object a [fencing.Gate]: if t is newer than
// the object's token it takes its place, and the data stay; from then on every
// older owner is refused. Of an object that is absent it makes one without data. A
// new owner does so with all objects of its key before it reads what the old one
// left, see [fencing.Seal].
func (o *Object) Admit(ctx context.Context, t fencing.Token) error {
	return o.change(ctx, t, nil, func(was envelope) (envelope, error) {
		if was.token == t {
			return envelope{}, errNothingToDo
		}
		return was, nil
	})
}

// recall returns what this process wrote last, if it was under the same token: a
// refusal must not rest on memory, and of a sleeper's write the object tells the
// fate only if it follows one of its own.
func (o *Object) recall(t fencing.Token) *state {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil || o.last.token != t {
		return nil
	}
	return o.last
}

// wrote remembers the version, and forgets the one before if it is "".
func (o *Object) wrote(version string, e envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = nil
	if version != "" {
		e.data = nil
		o.last = &state{version, e}
	}
}

// read returns the object's state, which for one that is absent is the zero value.
func (o *Object) read(ctx context.Context) (*state, error) {
	content, version, err := o.store.Read(ctx, o.name)
	switch {
	case errors.Is(err, ErrNotFound):
		return &state{}, nil
	case err != nil:
		return nil, o.errorf("read it: %w", err)
	case version == "":
		return nil, o.errorf("%w: it answers without a version", ErrInvalid)
	}
	e, err := decode(content)
	if err != nil {
		return nil, o.errorf("%w: %w; keep fenced objects under names that nothing else writes, and bring back an earlier version of this one, or remove it once no older owner can be alive", ErrUnfenced, err)
	}
	return &state{version, e}, nil
}

// judge returns why t may not follow what the object is.
func (o *Object) judge(was *state, t fencing.Token) error {
	switch {
	case was.version == "":
		return nil
	case was.token.Key != t.Key:
		return o.errorf("%w: it was written for %v, not for %v; give each key objects of its own", ErrOtherKey, was.token, t)
	case was.token.Fence > t.Fence:
		return o.errorf("%w", &fencing.StaleError{Token: t, Newest: was.token.Fence})
	}
	return nil
}

func (o *Object) errorf(format string, args ...any) error {
	return fmt.Errorf("objectguard: object %q: %w", o.name, fmt.Errorf(format, args...))
}
