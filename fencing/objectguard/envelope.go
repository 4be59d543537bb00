package objectguard

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/fencing"
)

const (
	format = "fenced/1"
	filled = "data"
	hollow = "none"

	// keptWrites is how many write ids an object keeps. That many writes may come
	// between a write and the read that finds out its outcome.
	keptWrites = 16
	// keptEnds is of how many previous owners an object keeps the last write. That
	// many owners may come while one is suspended; it still learns that it is stale.
	keptEnds = 8
	nobody   = "-" // if there was no previous owner
	// idBytes is the length of an id before base64 makes it 16 characters.
	idBytes = 12
	// maxLineBytes is more than the longest line: a token has at most 4 KiB.
	maxLineBytes = 8 << 10
)

// envelope is the content of a guarded object.
type envelope struct {
	token  fencing.Token
	writes []string // ids of the last writes, the newest first
	ends   []string // ids of the last write of each previous owner, the newest first
	filled bool     // there are data, possibly empty
	data   []byte
}

// follow returns e as the write that comes after was, under the token.
func (e envelope) follow(was envelope, t fencing.Token) envelope {
	var id [idBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	e.token = t
	e.writes = prepend(base64.RawURLEncoding.EncodeToString(id[:]), was.writes, keptWrites)
	e.ends = was.ends
	if len(was.writes) > 0 && was.token != t {
		e.ends = prepend(was.writes[0], was.ends, keptEnds)
	}
	return e
}

// prepend returns a new list of at most most ids, with id in front.
func prepend(id string, ids []string, most int) []string {
	return append([]string{id}, ids[:min(len(ids), most-1)]...)
}

func (e envelope) encode() ([]byte, error) {
	line, err := e.line()
	if err != nil {
		return nil, err
	}
	return slices.Concat(line, e.data), nil
}

func (e envelope) line() ([]byte, error) {
	state := hollow
	if e.filled {
		state = filled
	}
	ends := nobody
	if len(e.ends) > 0 {
		ends = strings.Join(e.ends, ",")
	}
	line, err := e.token.AppendText([]byte(format + " " + state + " " + strings.Join(e.writes, ",") + " " + ends + " "))
	return append(line, '\n'), err
}

// decode parses what encode returns, and refuses anything else.
func decode(content []byte) (envelope, error) {
	end := bytes.IndexByte(content[:min(len(content), maxLineBytes)], '\n')
	if end < 0 {
		return envelope{}, errors.New("it does not begin with a line of text")
	}
	line := content[:end+1]
	fields := strings.SplitN(string(content[:end]), " ", 5)
	if fields[0] != format || len(fields) < 5 {
		return envelope{}, fmt.Errorf("its first line, %.80q, is not of the format %q", line, format)
	}
	token, err := fencing.Parse(fields[4])
	if err != nil {
		// Not wrapped: the caller's own token is not malformed.
		return envelope{}, errors.New("its first line has no token: " + err.Error())
	}
	e := envelope{token: token, writes: strings.Split(fields[2], ","), filled: fields[1] == filled}
	if e.filled {
		e.data = content[end+1:]
	}
	if fields[3] != nobody {
		e.ends = strings.Split(fields[3], ",")
	}
	for _, id := range slices.Concat(e.writes, e.ends) {
		if b, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(b) != idBytes {
			return envelope{}, fmt.Errorf("its first line has the malformed id %.40q", id)
		}
	}
	// Each envelope has exactly one text, so any other change of the line shows here.
	again, err := e.line()
	if err != nil || !bytes.Equal(again, line) ||
		len(e.writes) > keptWrites || len(e.ends) > keptEnds || !e.filled && len(content) > len(line) {
		return envelope{}, fmt.Errorf("its first line, %.80q, was changed by something else", line)
	}
	return e, nil
}

// fate is the outcome of a write.
type fate int

const (
	unknown fate = iota // the object does not show it
	pending             // not done so far, but may still be
	done                // done, possibly with other writes after it
	never               // not done, and never will be: the version to follow is gone
)

// fateOf returns the outcome of the write. e was read after the write was sent.
// The write was to follow base, or to create the object if base has no writes.
func (e envelope) fateOf(write, base envelope) fate {
	if id := write.writes[0]; slices.Contains(e.writes, id) || slices.Contains(e.ends, id) {
		return done
	}
	if len(base.writes) == 0 {
		switch {
		case len(e.writes) == 0:
			return pending
		case len(e.writes) < keptWrites: // e has every write that was ever done
			return never
		}
		return unknown
	}
	followed := base.writes[0]
	switch slices.Index(e.writes, followed) {
	case 0:
		return pending
	case -1:
		// If base was the last write of this owner, the write was not done after it.
		if base.token == write.token && slices.Contains(e.ends, followed) {
			return never
		}
		return unknown
	}
	return never
}
