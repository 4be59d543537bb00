package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A stage is what contenders need: servers, and a place for their data. It is
// for one goroutine.
type stage struct {
	options
	data   string // directory that is gone with the stage
	stderr io.Writer
	began  time.Time

	etcds   int // started so far
	etcd    *testetcd.ProcessCluster
	peers   peers
	servers map[string]*server // Redis and Postgres, by name
}

func newStage(o options, stderr io.Writer) (*stage, error) {
	data, err := os.MkdirTemp(o.dir, "compare-*")
	if err != nil {
		return nil, err
	}
	// Postgres does not run as root, and must come through to its own part.
	if err := os.Chmod(data, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(data))
	}
	if data, err = filepath.Abs(data); err != nil {
		return nil, err
	}
	return &stage{options: o, data: data, stderr: stderr, began: time.Now(), servers: map[string]*server{}}, nil
}

// close ends all processes and removes all data.
func (st *stage) close() error {
	st.stopEtcd()
	for _, s := range st.servers {
		s.stop()
	}
	return os.RemoveAll(st.data)
}

func (st *stage) progress(format string, args ...any) {
	fmt.Fprintf(st.stderr, "%4.0f s  %s\n", time.Since(st.began).Seconds(), fmt.Sprintf(format, args...))
}

// startEtcd starts an etcd with nothing in it, with fsync, as a process.
func (st *stage) startEtcd() (err error) {
	st.etcds++
	st.etcd, err = testetcd.NewProcessCluster(filepath.Join(st.data, fmt.Sprintf("etcd-%d", st.etcds)), 1,
		testetcd.Quota(8<<30)) // a long comparison writes more than the 2 GiB of the default
	return err
}

// stopEtcd removes its data too: a long comparison would fill the disk.
func (st *stage) stopEtcd() {
	if st.etcd == nil {
		return
	}
	st.etcd.Stop()
	st.etcd = nil
	_ = os.RemoveAll(filepath.Join(st.data, fmt.Sprintf("etcd-%d", st.etcds))) // it is tried again at the end
}

// version asks etcd for its own.
func (st *stage) version(ctx context.Context) (string, error) {
	if err := st.startEtcd(); err != nil {
		return "", err
	}
	defer st.stopEtcd()
	etcd, err := new(wire).dial(st, plain)
	if err != nil {
		return "", err
	}
	defer hangUp(etcd)
	status, err := etcd.Status(ctx, etcd.Endpoints()[0])
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

// etcdTime returns what reads the CPU time of the etcd that runs now.
func (st *stage) etcdTime() func() int64 {
	pid := st.etcd.Members[0].Pid()
	return func() int64 { return int64(cpuTimeOf(pid)) }
}

// shape is the load that n workers make.
func (st *stage) shape(n int) load.Shape {
	window := st.window
	if n >= 1024 {
		window *= 2 // a cycle of each takes about as long as the window of fewer
	}
	return load.Shape{Workers: n, WarmUp: st.warmUp, Window: window}
}

// prefix returns one that nobody else uses, about as long as those of real use.
func prefix() string { return "/" + strings.ToLower(rand.Text()[:8]) + "/" }

func hangUp(etcd *clientv3.Client) {
	_ = etcd.Close() // it ends with an error of its watches, and nobody needs it any more
}
