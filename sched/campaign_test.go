package sched_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The error of an ownership whose release etcd does not answer has its cause once.
func TestErrorOfOwnershipSaysTheCauseOnce(t *testing.T) {
	for wait := time.Duration(0); wait < 15*time.Second; wait += 500 * time.Millisecond {
		inFleet(t, func(t *testing.T, f *fleet) {
			core, logs := observer.New(zap.WarnLevel)
			f.cfg.Logger = zap.New(core)
			f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
			n := f.start(0)
			f.until("00:00:30")
			n.host.Cut()
			time.Sleep(wait)
			n.stop()
			for _, e := range logs.FilterMessage("group ownership lost").All() {
				text, _ := e.ContextMap()["error"].(string)
				if strings.Count(text, "context deadline exceeded") > 1 || strings.Count(text, "deadline passed") > 1 {
					t.Errorf("the cause is repeated: %s", text)
				}
			}
			if logs.FilterMessage("group ownership lost").Len() != 1 {
				t.Errorf("%v", logs.All())
			}
		})
	}
}
