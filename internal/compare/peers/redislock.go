package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// ttl is that of claims.
const ttl = 15 * time.Second

// redisConnections is what served redislock best, or nearly so, on two cores.
const redisConnections = 128

type redisLocks struct {
	redis *redis.Client
	locks *redislock.Client
}

func openRedislock(address string) redisLocks {
	c := redis.NewClient(&redis.Options{
		Addr: address, PoolSize: redisConnections,
		PoolTimeout: time.Minute, // thousands of goroutines wait in line for a connection
	})
	return redisLocks{redis: c, locks: redislock.New(c)}
}

func (r redisLocks) cycle(ctx context.Context, key string) error {
	lock, err := r.locks.Obtain(ctx, key, ttl, nil)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

func (r redisLocks) close() { _ = r.redis.Close() }
