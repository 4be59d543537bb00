package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// What a journal tells. An effect is an intent, written before it is sent, and
// one outcome, written when the reply has come; a worker that is killed between
// the two leaves an intent alone.
const (
	opIntent  = "intent"
	opDone    = "done"
	opRefused = "refused" // the fence shut it out: nothing was carried out
	opUnknown = "unknown"
	opFailed  = "failed" // another error that says that nothing was carried out

	opOdd       = "odd"       // an error that nothing accounts for
	opSuspected = "suspected" // whether a suspicion of so many claims was right
	opEnqueued  = "enqueued"
	opClaimed   = "claimed"
)

// Kinds of effects.
const (
	kindTxn  = "by Claim.Txn"
	kindHeld = "by a guard"      // a transaction of etcd under Claim.Guard, whatever the claim's own clock says
	kindLate = "by a late guard" // the same, once the claim is over: must be refused, unless etcd does not know of it yet
	kindSet  = "on the set"
	kindItem = "on an item" // of the queue: that completes it
)

// wronglySuspected is the note of a suspicion whose holder answered in the end.
const wronglySuspected = ", wrongly"

// An entry is one line of a worker's journal.
type entry struct {
	At    int64  `json:"at"` // Unix time in nanoseconds
	Op    string `json:"op"`
	ID    string `json:"id,omitempty"` // of the effect, unique over the run
	Kind  string `json:"kind,omitempty"`
	Key   string `json:"key,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	Want  int    `json:"want,omitempty"` // how many claims were taken
	Note  string `json:"note,omitempty"`
}

func (e entry) token() fencing.Token { return fencing.Token{Key: e.Key, Fence: e.Fence} }

// A journal is the file in which a worker keeps its entries. Only processes die
// here, not the machine, so what was written stays.
type journal struct {
	mu   sync.Mutex
	file *os.File
	next int
	name string
}

const journalEnd = ".journal"

func openJournal(dir, name string) (*journal, error) {
	file, err := os.OpenFile(filepath.Join(dir, name+journalEnd), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &journal{file: file, name: name}, err
}

// id returns a name for an effect or an item that no other has.
func (j *journal) id() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	return fmt.Sprintf("%s-%d", j.name, j.next)
}

// write adds an entry, and returns it with its time. A journal that cannot be written
// would make the verdict worthless, so that ends the worker.
func (j *journal) write(e entry) entry {
	e.At = time.Now().UnixNano()
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.WriteString(keyspace.Encode(e) + "\n"); err != nil {
		panic(fmt.Sprintf("campaign: journal: %v", err))
	}
	return e
}

// readJournals returns the entries of all workers, in the order of each.
func readJournals(dir string) (all []entry, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalEnd))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		for from := json.NewDecoder(file); err == nil; {
			var e entry
			if err = from.Decode(&e); err == nil {
				all = append(all, e)
			}
		}
		_ = file.Close()
		// The last entry is cut short if the worker was killed while it wrote.
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, err
}
