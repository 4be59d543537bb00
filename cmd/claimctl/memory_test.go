package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A doctor that read etcd before another one, and the memory after it, sees no restore, and makes
// the memory no older.
func TestDoctorsAtOnce(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	c := &checkup{app: &app{}, memory: filepath.Join(w.dir(), "seen.json"), Examination: doctor.Examination{Claims: w.client("slow"), Patience: 5 * time.Second}}
	epoch, early, err := doctor.ReadEpoch(t.Context(), w.etcd, w.prefix)
	w.noErr(err)
	w.noErr(w.claim(w.client("a"), "k").Release(t.Context()))
	other := &checkup{app: &app{}, memory: c.memory, Examination: c.Examination}
	_, late, err := doctor.ReadEpoch(t.Context(), w.etcd, w.prefix)
	w.noErr(err)
	other.revision(t.Context(), epoch, late)
	w.has(other.Findings, doctor.OK, "revision", "not behind")
	c.revision(t.Context(), epoch, early)
	w.has(c.Findings, doctor.OK, "revision", "not behind")
	if last, _ := greatest(c.remembered(), ""); last.Revision < late.Revision || early.Revision >= late.Revision {
		t.Errorf("remembered is %+v; early %d, late %d", last, early.Revision, late.Revision)
	}
}

// However many write, the greatest is remembered, and nobody reads half of a file.
func TestMemoryOfMany(t *testing.T) {
	t.Parallel()
	const doctors = 40
	dir := t.TempDir()
	c := &checkup{memory: filepath.Join(dir, "sub", "seen.json")}
	var wg sync.WaitGroup
	for i := range doctors {
		wg.Go(func() {
			for _, endpoints := range []string{"[h1] /p/ ", fmt.Sprintf("[h%d] /q/ ", i)} {
				if err := c.keep(endpoints, "cluster", sighting{Revision: int64(i + 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := c.remembered()
	if last, of := greatest(seen, "[h1] /p/ "); last.Revision != doctors || of != "[h1] /p/ cluster" || len(seen) != doctors+1 {
		t.Errorf("%+v of %q, %d entries", last, of, len(seen))
	}
	files, err := os.ReadDir(filepath.Dir(c.memory))
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
