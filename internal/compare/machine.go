package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// A machine is what rates depend on.
type machine struct {
	cores            int
	os, golang, etcd string
	sync             time.Duration // median of appending 4 KB and syncing it
}

func (st *stage) machine(ctx context.Context) (machine, error) {
	m := machine{
		cores: runtime.NumCPU(), os: runtime.GOOS + "/" + runtime.GOARCH, golang: runtime.Version(),
	}
	var err error
	if m.sync, err = syncTime(st.data); err != nil {
		return m, err
	}
	m.etcd, err = st.version(ctx)
	return m, err
}

// syncTime measures what etcd waits for with each proposal.
func syncTime(dir string) (_ time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, 4096)
	took := make([]time.Duration, 200)
	for i := range took {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := syncData(f); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func (m machine) print(out io.Writer, o options) error {
	_, err := fmt.Fprintf(out, "%d cores, %s, %s; etcd %s, with fsync, on the same machine; fdatasync of 4 KB takes %.3f ms\n"+
		"%d rounds of %v for each row, fewer where one takes long, in random order; medians over the rounds, and of ratios within each round\n",
		m.cores, m.os, m.golang, m.etcd, float64(m.sync)/float64(time.Millisecond), o.rounds, o.window)
	return err
}
