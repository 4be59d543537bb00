package telemetry_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

func formatted(fence int64) string { return strconv.FormatInt(fence, 10) }

func TestGate(t *testing.T) {
	inWorld(t, func(w *world) {
		gate := w.tel.Gate("orders", &fencing.Memory{})
		ctx, span := w.traces.Tracer("test").Start(w.Context(), "write")
		admit := func(key string, fence int64) { _ = gate.Admit(ctx, fencing.Token{Key: key, Fence: fence}) }
		admit("k", 7)
		admit("k", 8)
		time.Sleep(3 * sec)
		admit("k", 8)
		admit("k", 7) // 3 s after the fence rose
		admit("k", 0)
		admit("\x00", 1)
		w.tel.CountAdmission(ctx, "sql", fencing.Token{Key: "k", Fence: 1}, nil)
		span.End()
		w.expect(map[string]string{
			"etcdclaims.fence.admissions{gate=orders,result=admitted}":  "3",
			"etcdclaims.fence.admissions{gate=orders,result=stale}":     "1",
			"etcdclaims.fence.admissions{gate=orders,result=missing}":   "1",
			"etcdclaims.fence.admissions{gate=orders,result=malformed}": "1",
			"etcdclaims.fence.admissions{gate=sql,result=admitted}":     "1",
			"etcdclaims.fence.lag{gate=orders}":                         "1×3.0",
		})
		if events := w.ended()["write"][0].Events(); len(events) != 1 || events[0].Name != "refused" {
			w.Error(events)
		}
	})
}
