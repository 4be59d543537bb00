package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// askTimeout is how long the parent waits for one member's answer.
const askTimeout = time.Second

// members is the cluster, reached directly: one client for each member, so that
// one that is paused holds up nothing but what is asked of it.
type members struct {
	cluster *testetcd.ProcessCluster
	clients []*clientv3.Client
}

func startMembers(dir string, n int) (*members, error) {
	cluster, err := testetcd.NewProcessCluster(dir, n)
	if err != nil {
		return nil, err
	}
	m := &members{cluster: cluster}
	for _, p := range cluster.Members {
		client, err := clientv3.New(clientv3.Config{Endpoints: p.Endpoints(), DialTimeout: askTimeout, Logger: zap.NewNop()})
		if err != nil {
			m.close()
			return nil, err
		}
		m.clients = append(m.clients, client)
	}
	return m, nil
}

func (m *members) close() {
	for _, c := range m.clients {
		_ = c.Close() // it ends with an error of a watch, and nobody needs it any more
	}
	m.cluster.Stop()
}

// ask tries one member after the other until one has answered. What is asked
// may be carried out more than once.
func (m *members) ask(ctx context.Context, question func(context.Context, *clientv3.Client) error) error {
	var errs []error
	for _, c := range m.clients {
		asking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askTimeout)
		err := question(asking, c)
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// insist asks until it is answered.
func (m *members) insist(ctx context.Context, question func(context.Context, *clientv3.Client) error) error {
	for {
		err := m.ask(ctx, question)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		retry.Sleep(ctx, 100*time.Millisecond)
	}
}

// leader returns which member leads, or -1 if most of them do not agree on it.
func (m *members) leader(ctx context.Context) int {
	statuses := make([]*clientv3.StatusResponse, len(m.clients))
	var asking sync.WaitGroup
	for i, c := range m.clients {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
			defer cancel()
			if resp, err := c.Status(ctx, c.Endpoints()[0]); err == nil {
				statuses[i] = resp
			}
		})
	}
	asking.Wait()
	votes := map[uint64]int{}
	for _, s := range statuses {
		if s != nil {
			votes[s.Leader]++
		}
	}
	for i, s := range statuses {
		if s != nil && s.Header.MemberId == s.Leader && votes[s.Leader] > len(m.clients)/2 {
			return i
		}
	}
	return -1
}

// moveLeader has the leader hand over to another member.
func (m *members) moveLeader(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*askTimeout)
	defer cancel()
	target := m.clients[to]
	status, err := target.Status(ctx, target.Endpoints()[0])
	if err != nil {
		return err
	}
	_, err = m.clients[from].MoveLeader(ctx, status.Header.MemberId)
	return err
}

// all returns everything with a prefix, read page by page at one revision.
func (m *members) all(ctx context.Context, prefix string, each func(key string, value []byte, create, mod, version int64)) error {
	const page = 2000
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		var resp *clientv3.GetResponse
		err := m.insist(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
			resp, err = c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(rev))
			return err
		})
		if err != nil {
			return fmt.Errorf("reading %s: %w", prefix, err)
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			each(string(kv.Key), kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version)
		}
		if !resp.More {
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
