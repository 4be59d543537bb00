package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/testetcd"
)

const (
	memberCount = 3
	askTimeout  = time.Second // how long the parent waits for one member's answer
)

// members is the cluster, reached directly: one client for each member, so that
// one that is paused holds up nothing but what is asked of it.
type members struct {
	cluster *testetcd.ProcessCluster
	clients []*clientv3.Client
}

func startMembers(dir string) (*members, error) {
	cluster, err := testetcd.NewProcessCluster(dir, memberCount)
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

// A question is put to one member. It may be carried out more than once.
type question func(context.Context, *clientv3.Client) error

// ask tries one member after the other until one has answered.
func (m *members) ask(ctx context.Context, ask question) error {
	var errs []error
	for _, c := range m.clients {
		asking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askTimeout)
		err := ask(asking, c)
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// insist asks until it is answered.
func (m *members) insist(ctx context.Context, ask question) error {
	return retry.Do(ctx, func(error) bool { return true }, func() error { return m.ask(ctx, ask) })
}

// leader returns which member leads, or -1 if none says so. Of several it is the one of the
// latest term.
func (m *members) leader(ctx context.Context) int {
	leader, term := -1, uint64(0)
	for i, c := range m.clients {
		asking, cancel := context.WithTimeout(ctx, askTimeout/2)
		s, err := c.Status(asking, c.Endpoints()[0])
		cancel()
		if err == nil && s.Leader == s.Header.MemberId && s.RaftTerm > term {
			leader, term = i, s.RaftTerm
		}
	}
	return leader
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

// all reads everything with a prefix, at one revision.
func (m *members) all(ctx context.Context, prefix string, each func(*mvccpb.KeyValue)) error {
	const page = 2000
	read := func(op clientv3.Op) (*clientv3.GetResponse, error) {
		var resp clientv3.OpResponse
		err := m.insist(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
			resp, err = c.Do(ctx, op)
			return err
		})
		return resp.Get(), err
	}
	for part, err := range retry.Pages(clientv3.OpGet(prefix, clientv3.WithPrefix()), page, page, read) {
		if err != nil {
			return fmt.Errorf("reading %s: %w", prefix, err)
		}
		for _, kv := range part.Kvs {
			each(kv)
		}
	}
	return nil
}
