package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/passthrough"
)

// ErrDone is returned when the function has already run for the key, and was not
// called again.
var ErrDone = errors.New("done before")

// FuncOnce returns a function that runs fn once for each key of its input, across
// all processes.
//
// What fn returns is stored as JSON, in the transaction that records it as done,
// for as long as done work is remembered (work.Config.Retention). A later
// call returns the same Out, with an error that matches ErrDone, or without an
// error if Skip is set. An Out of more than 64 KiB of JSON, or one that cannot be
// encoded as JSON, such as a string that is not UTF-8, is not stored. A later call then returns the zero Out and
// ErrDone, even if Skip is set.
//
// If fn returns an error, the attempt failed. work.Config.Backoff sets when a call
// may run fn again, and work.Config.MaxAttempts how many attempts there are. A call
// that may not run fn returns a *NotRunError.
//
// An error that matches fencing.ErrUnknown means that the outcome may have been
// recorded: call again to find out. For other errors, Wait and Skip, panics and
// nil works see Func.
//
// fn may run more than once: if its process dies, or its claim is lost, another
// call runs fn again. The option work.AtMostOnce prevents that. It does not
// prevent another attempt after fn has returned an error or panicked. Use the fence
// to guard effects that must not happen twice.
func FuncOnce[In, Out any](
	works Works, key func(In) string, fn func(context.Context, In) (Out, error), cfg FuncConfig, opts ...WorkOption,
) func(context.Context, In) (Out, error) {
	if key == nil || fn == nil {
		panic("middleware: FuncOnce needs a key function and a function")
	}
	if passthrough.Of(works) {
		return fn
	}
	none := passthrough.Check(works)
	return func(ctx context.Context, in In) (out Out, err error) {
		k := key(in)
		if err := cmp.Or(none, checkClaimed(k)); err != nil {
			return out, &NotRunError{Key: k, Err: err}
		}
		var result []byte
		made := func() ([]byte, error) { return remembered(out), nil }
		called, err := underWork(ctx, k, cfg.Wait,
			remembering(works.TryOnce, k, opts, &result, made),
			remembering(works.Once, k, opts, &result, made),
			func(ctx context.Context) (err error) {
				out, err = fn(ctx, in)
				return err
			})
		switch {
		case called:
			return out, err
		case err != nil:
			return out, cfg.skip(err)
		}
		if len(result) == 0 {
			return out, fmt.Errorf("middleware: %w, for key %q; its result was not stored", ErrDone, k)
		}
		if err := json.Unmarshal(result, &out); err != nil {
			return out, fmt.Errorf("middleware: %w, for key %q; its result cannot be decoded: %w", ErrDone, k, err)
		}
		if cfg.Skip {
			return out, nil
		}
		return out, fmt.Errorf("middleware: %w, for key %q", ErrDone, k)
	}
}

// asItWas reports whether JSON preserves the texts that it was made of. Where one is not UTF-8,
// package json writes this escape, which it does not write for the character itself.
func asItWas(b []byte) bool {
	unescaped := bytes.ReplaceAll(b, []byte(`\\`), nil)
	return !bytes.Contains(unescaped, []byte(`\ufffd`))
}

// remembered returns what is stored of a function's result, or nothing if it
// cannot be stored. That is not an error: the function has run.
func remembered(out any) []byte {
	b, err := json.Marshal(out)
	if err != nil || len(b) > maxResult || !asItWas(b) {
		return nil
	}
	return b
}
