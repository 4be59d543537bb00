package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisSemaphore is the counting semaphore of "Redis in Action" (Carlson, 2013, section
// 6.3), as a script with the clock of Redis: holders are the members of a sorted set, by
// the time at which they entered. It has no line: who does not get in asks again.
type redisSemaphore struct {
	redis *redis.Client
	limit int
}

var enter = redis.NewScript(`
local now = redis.call("TIME")
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now - ARGV[3])
if redis.call("ZCARD", KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
return redis.call("ZADD", KEYS[1], now, ARGV[1])`)

func openRedisSemaphore(address string, limit int) redisSemaphore {
	return redisSemaphore{openRedislock(address).redis, limit}
}

// cycle enters and leaves. Between two tries it waits for one to two milliseconds, about
// as long as others take to hold it.
func (s redisSemaphore) cycle(ctx context.Context, who int) error {
	const key = "semaphore"
	name := fmt.Sprintf("%d-%s", who, strconv.FormatUint(rand.Uint64(), 36))
	for {
		in, err := enter.Run(ctx, s.redis, []string{key}, name, s.limit, ttl.Milliseconds()).Int()
		if err != nil {
			return err
		}
		if in == 1 {
			return s.redis.ZRem(ctx, key, name).Err()
		}
		select {
		case <-time.After(time.Millisecond + rand.N(time.Millisecond)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s redisSemaphore) close() { _ = s.redis.Close() }
