package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// quota is what a process knows of the room in etcd's database. Beyond its quota etcd
// refuses claims, too, and all verbs but Complete, so enqueues stop before. The answer of
// etcd is kept for a while, and asked for in the background: an enqueue never waits for
// it.
//
// Used pages count, and not the size of the file: that never shrinks by itself, and etcd
// fills its free pages before the file grows.
type quota struct {
	reserve int // percent of the quota; 0 or less: no limit

	mu       sync.Mutex
	asked    time.Time // when etcd was asked last
	asking   bool
	answered time.Time // when it answered last
	used     int64     // bytes, as of that
	limit    int64     // in bytes; 0 if it is unknown, or if etcd has no quota
}

const (
	askQuota    = 10 * time.Second // how often etcd is asked while items are enqueued
	trustsQuota = time.Minute      // how long an answer counts if no other comes
)

// room returns an error if the database is nearly full.
func (u *quota) room(q *store) error {
	if u.reserve <= 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := clock.Mono()
	if !u.asking && now.Sub(u.asked) >= askQuota {
		u.asking, u.asked = true, now
		if !q.spawn(func() { u.ask(q) }) {
			u.asking = false
		}
	}
	if u.limit <= 0 || now.Sub(u.answered) >= trustsQuota || u.used/100 < u.limit/100*int64(100-u.reserve)/100 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d bytes are used", errNearQuota, u.used, u.limit)
}

// ask asks a member of etcd. Members before 3.6 do not report their quota.
func (u *quota) ask(q *store) {
	ctx, cancel := context.WithTimeout(q.ctx, requestTimeout)
	defer cancel()
	var resp *etcdserverpb.StatusResponse
	err := errClosed
	if conn := q.claims.Etcd().ActiveConnection(); conn != nil { // not Status, which dials
		resp, err = etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asking = false
	if err != nil {
		q.log.Debug("size of etcd unknown", zap.Error(err))
		return
	}
	u.answered, u.used, u.limit = clock.Mono(), resp.DbSizeInUse, resp.DbSizeQuota
}
