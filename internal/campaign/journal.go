package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What a journal tells. An effect is an intent, written before it is sent, and
// one outcome, written when the reply has come; a worker that is killed between
// the two leaves an intent alone.
const (
	opIntent  = "intent"
	opOK      = "ok"
	opRefused = "refused" // the fence shut it out: nothing was carried out
	opUnknown = "unknown"
	opFailed  = "failed" // another error that says that nothing was carried out
	opOdd     = "odd"    // an error that nothing accounts for

	opSuspected = "suspected" // whether a suspicion of so many claims was right
)

// Kinds of effects.
const (
	kindTxn  = "txn"  // Claim.Txn
	kindHeld = "held" // a transaction of etcd under Claim.Guard, whatever the claim's own clock says
	kindLate = "late" // the same, once the claim is over: must be refused, unless etcd does not know of it yet
	kindSet  = "set"  // an element of the fenced set
)

// wronglySuspected is the note of a suspicion whose holder answered in the end.
const wronglySuspected = "wrong"

// An entry is one line of a worker's journal.
type entry struct {
	At    int64  `json:"at"` // Unix time in nanoseconds
	Op    string `json:"op"`
	ID    string `json:"id,omitempty"` // of the effect, unique over the run
	Kind  string `json:"kind,omitempty"`
	Key   string `json:"key,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	Rev   int64  `json:"rev,omitempty"`  // of an effect that was carried out, if the reply tells
	Want  int    `json:"want,omitempty"` // how many claims were taken
	Note  string `json:"note,omitempty"`
}

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
	if err != nil {
		return nil, err
	}
	return &journal{file: file, name: name}, nil
}

// id returns a name for an effect that no other has.
func (j *journal) id() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	return fmt.Sprintf("%s-%d", j.name, j.next)
}

// write adds an entry. A journal that cannot be written would make the verdict
// worthless, so that ends the worker.
func (j *journal) write(e entry) {
	e.At = time.Now().UnixNano()
	line, err := json.Marshal(e)
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("campaign: journal: %v", err))
	}
}

func (j *journal) close() error { return j.file.Close() }

// readJournals returns the entries of all workers, in the order of each.
func readJournals(dir string) ([]entry, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalEnd))
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		entries, err := parseJournal(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, entries...)
	}
	return all, nil
}

func parseJournal(data []byte) ([]entry, error) {
	var entries []entry
	for number := 1; len(data) > 0; number++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break // the worker was killed while it wrote
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		entries, data = append(entries, e), rest
	}
	return entries, nil
}
