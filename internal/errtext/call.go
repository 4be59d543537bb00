package errtext

import (
	"errors"
	"strconv"
)

// called is the error of a call, for a key if there is one. Its text names
// both, once, and is one line.
type called struct {
	call, key string
	err       error
}

// Call says of which call and key an error is, unless it says so itself.
func Call(call, key string, err error) error {
	var is *called
	if errors.As(err, &is) && is.key == key {
		return err
	}
	return &called{call: call, key: key, err: err}
}

// CallOfAll says of which call an error is that concerns no single key.
func CallOfAll(call string, err error) error { return &called{call: call, err: err} }

func (e *called) Error() string {
	if e.key == "" {
		return e.call + ": " + Bare(e.err)
	}
	return e.call + " " + strconv.Quote(e.key) + ": " + Bare(e.err)
}

func (e *called) Unwrap() error { return e.err }
