package main

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// safe is written to by several goroutines.
type safe struct {
	mu sync.Mutex
	strings.Builder
}

func (s *safe) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(text)
}

func TestEachTickRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out safe
		err := run(t.Context(), claimtest.Start(t).Etcd(t), "/cron/", &out)
		story := `^(member-\d) is the owner now, and admits all ticks\n(?s:.*)(member-\d) leaves\n(member-\d) is the owner now(?s:.*)\n1[0-2] ticks of count were due, 1[0-2] ran\n$`
		match := regexp.MustCompile(story).FindStringSubmatch(out.String())
		if err != nil || match == nil || match[1] != match[2] || match[2] == match[3] || strings.Count(out.String(), " reports for ") < 2 {
			t.Errorf("%v:\n%s", err, &out)
		}
	})
}
