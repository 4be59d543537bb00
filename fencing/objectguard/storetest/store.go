package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/fencing/objectguard"
)

// TestStore runs all tests, those of TestGuards included. Each test calls open
// for a store of its own, without objects whose names begin with "a/".
func TestStore(t *testing.T, open func(t *testing.T) objectguard.Store) {
	for _, test := range []struct {
		name string
		run  func(s *trial)
	}{
		{"absent", (*trial).absent},
		{"create", (*trial).create},
		{"replace", (*trial).replace},
		{"content is kept", (*trial).content},
		{"reads see writes", (*trial).readsSeeWrites},
		{"one of many creates", (*trial).creators},
		{"one of many replaces", (*trial).replacers},
		{"a caller that is gone", (*trial).callerGone},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&trial{t, open(t)}) })
	}
	TestGuards(t, open)
}

// trial is one test of one store.
type trial struct {
	*testing.T
	objectguard.Store
}

// holds checks that the object has this content, and returns its version.
func (s *trial) holds(name, want string) string {
	s.Helper()
	data, version, err := s.Read(s.Context(), name)
	if err != nil || string(data) != want || version == "" {
		s.Fatalf("%s contains %.40q at version %q (error %v), want %.40q", name, data, version, err, want)
	}
	return version
}

// conflicts checks that err reports that the condition of a write did not hold.
func (s *trial) conflicts(err error, what string) {
	s.Helper()
	if !errors.Is(err, objectguard.ErrConflict) && !errors.Is(err, objectguard.ErrNotFound) {
		s.Errorf("%s: %v, want an error that matches ErrConflict", what, err)
	}
}

func (s *trial) created(name, data string) string {
	s.Helper()
	version, err := s.Create(s.Context(), name, []byte(data))
	if err != nil {
		s.Fatalf("Create: %v", err)
	}
	if got := s.holds(name, data); version != "" && got != version {
		s.Errorf("Create returned version %q, Read returned %q", version, got)
	}
	return s.holds(name, data)
}

func (s *trial) absent() {
	if _, _, err := s.Read(s.Context(), "a/absent"); !errors.Is(err, objectguard.ErrNotFound) {
		s.Errorf("Read: %v, want an error that matches ErrNotFound", err)
	}
	version := s.created("a/other", "x")
	_, err := s.Replace(s.Context(), "a/absent", []byte("y"), version)
	s.conflicts(err, "Replace of an absent object")
	if _, _, err := s.Read(s.Context(), "a/absent"); !errors.Is(err, objectguard.ErrNotFound) {
		s.Errorf("Read after a Replace: %v, want an error that matches ErrNotFound", err)
	}
}

func (s *trial) create() {
	version := s.created("a/1", "one")
	for _, data := range []string{"two", "one"} {
		_, err := s.Create(s.Context(), "a/1", []byte(data))
		s.conflicts(err, "Create of an existing object")
	}
	if got := s.holds("a/1", "one"); got != version {
		s.Errorf("the version changed to %q from %q", got, version)
	}
}

func (s *trial) replace() {
	first := s.created("a/1", "one")
	second, err := s.Replace(s.Context(), "a/1", []byte("two"), first)
	if err != nil {
		s.Fatalf("Replace: %v", err)
	}
	if got := s.holds("a/1", "two"); got == first || second != "" && got != second {
		s.Errorf("version %q was replaced by version %q; Replace returned %q", first, got, second)
	}
	_, err = s.Replace(s.Context(), "a/1", []byte("late"), first)
	s.conflicts(err, "Replace of an old version")
	s.holds("a/1", "two")
}

func (s *trial) content() {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, data := range [][]byte{all, []byte("\r\n\n\r\x00 "), bytes.Repeat(all, 1<<12)} {
		name := fmt.Sprintf("a/%d", i)
		mine := bytes.Clone(data)
		if _, err := s.Create(s.Context(), name, mine); err != nil {
			s.Fatal(err)
		}
		if !bytes.Equal(mine, data) {
			s.Error("Create changed its argument data")
		}
		clear(mine)
		got, version, err := s.Read(s.Context(), name)
		if err != nil || !bytes.Equal(got, data) {
			s.Errorf("%d bytes were written, %d other bytes were read (error %v)", len(data), len(got), err)
			continue
		}
		clear(got)
		if again := s.holds(name, string(data)); again != version {
			s.Errorf("the version is %q, then %q without a write", version, again)
		}
	}
}

func (s *trial) readsSeeWrites() {
	version := s.created("a/1", "0")
	for i := range 50 {
		data := fmt.Sprint(i + 1)
		made, err := s.Replace(s.Context(), "a/1", []byte(data), version)
		if err != nil {
			s.Fatal(err)
		}
		if version = s.holds("a/1", data); made != "" && made != version {
			s.Errorf("Replace returned version %q, Read returned %q", made, version)
		}
	}
}

const rivals = 12

func (s *trial) creators() {
	for round := range 5 {
		name := fmt.Sprintf("a/%d", round)
		s.race(name, func(data []byte) error {
			_, err := s.Create(s.Context(), name, data)
			return err
		})
	}
}

func (s *trial) replacers() {
	for round := range 5 {
		name := fmt.Sprintf("a/%d", round)
		version := s.created(name, "before")
		s.race(name, func(data []byte) error {
			_, err := s.Replace(s.Context(), name, data, version)
			return err
		})
	}
}

// race runs rival writes at once, and checks that exactly one is done: the one
// whose content is there in the end.
func (s *trial) race(name string, write func(data []byte) error) {
	s.Helper()
	errs := make([]error, rivals)
	data := func(i int) string { return fmt.Sprintf("writer %d", i) }
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() { errs[i] = write([]byte(data(i))) })
	}
	wg.Wait()
	content, _, err := s.Read(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	for i, err := range errs {
		if err == nil && data(i) != string(content) {
			s.Errorf("writer %d got no error, but the object contains %q", i, content)
		}
		// A loser may also get an unknown outcome.
		if errors.Is(err, objectguard.ErrNotFound) && !errors.Is(err, objectguard.ErrConflict) {
			s.Errorf("writer %d: %v, which matches ErrNotFound", i, err)
		}
	}
}

func (s *trial) callerGone() {
	gone, cancel := context.WithCancel(s.Context())
	cancel()
	version := s.created("a/1", "one")
	_, _, err := s.Read(gone, "a/1")
	if err == nil || errors.Is(err, objectguard.ErrNotFound) {
		s.Errorf("Read with a canceled context: %v, want an error other than ErrNotFound", err)
	}
	_, err = s.Replace(gone, "a/1", []byte("two"), version)
	if errors.Is(err, objectguard.ErrConflict) || errors.Is(err, objectguard.ErrNotFound) {
		s.Errorf("Replace with a canceled context: %v, want neither ErrConflict nor ErrNotFound", err)
	}
}
