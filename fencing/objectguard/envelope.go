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

	// keptWrites is how many ids an object has: as many writes may come between
	// one and the look at what became of it.
	keptWrites = 16
	// keptEnds is how many former owners an object knows the last write of: as
	// many may come while one sleeps, who then is told that it is stale.
	keptEnds = 8
	nobody   = "-" // where there was no owner before
	// idBytes is the length of an id before base64 makes it 16 characters.
	idBytes = 12
	// maxLineBytes is more than a line can have: a token has 4 KiB at most.
	maxLineBytes = 8 << 10
)

// envelope is the content of a guarded object.
type envelope struct {
	token  fencing.Token
	writes []string // ids of the last writes, the newest first
	ends   []string // ids of the last write of each former owner, the newest first
	filled bool     // there are data, if empty ones
	data   []byte
}

// follow makes e the write that comes after was, under the token.
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

// prepend returns a new list, of which it leaves out the end if it is too long.
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

// decode takes apart what encode made, and nothing else.
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
		// Not wrapped: it is not the caller's token that is malformed.
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
			return envelope{}, fmt.Errorf("its first line has the id %.40q, which no write has", id)
		}
	}
	// One text for each envelope: whatever else was done to the line shows here.
	if again, err := e.line(); err != nil || !bytes.Equal(again, line) || len(e.writes) > keptWrites || len(e.ends) > keptEnds || !e.filled && len(content) > len(line) {
		return envelope{}, fmt.Errorf("its first line, %.80q, was changed by something else", line)
	}
	return e, nil
}

// fate is what became of a write.
type fate int

const (
	unknown fate = iota // nobody can tell
	pending             // not done so far, but it may be yet
	done                // done, whatever came after it
	never               // not done, nor can it be: what it was to follow is gone
)

// fateOf tells from e, which was read after the write was sent, what became of the
// write, which was to follow base, or to be the first if base has none.
func (e envelope) fateOf(write, base envelope) fate {
	if id := write.writes[0]; slices.Contains(e.writes, id) || slices.Contains(e.ends, id) {
		return done
	}
	if len(base.writes) == 0 {
		switch {
		case len(e.writes) == 0:
			return pending
		case len(e.writes) < keptWrites: // all there ever were
			return never
		}
		return unknown
	}
	followed := base.writes[0]
	switch slices.Index(e.writes, followed) {
	case 0:
		return pending
	case -1:
		// If it was the last of its owner, this one's was not done behind it.
		if base.token == write.token && slices.Contains(e.ends, followed) {
			return never
		}
		return unknown
	}
	return never
}
