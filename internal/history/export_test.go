package history

import (
	"encoding/json"
	"errors"
	"io"
)

// Read reads a history that Write wrote.
func Read(r io.Reader) (*History, error) {
	h := New()
	for dec := json.NewDecoder(r); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, err
		}
		h.events = append(h.events, e)
	}
}
