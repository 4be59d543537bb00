package simulation

import (
	"time"
)

func (w *world) compact(*process) {
	w.trace.catchUp() // the observer is to miss nothing
	w.server.Compact(w)
}

func (w *world) restartEtcd(*process) {
	end := w.ledger.begin(span{outage: true})
	w.server.Stop(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.Restart(w)
	time.Sleep(2 * time.Second)
	// Until gRPC tries again, which it does less often the longer it was refused.
	w.after(2*longTTL, end)
}

func (w *world) fillQuota(*process) {
	end := w.ledger.begin(span{quota: true})
	defer end()
	w.server.FillQuota(w)
	time.Sleep(between(w.rng, 0, longTTL))
	w.server.FreeQuota(w)
}

func (w *world) expireTokens(*process) {
	if w.auth {
		end := w.ledger.begin(span{})
		w.server.ExpireTokens(w)
		w.after(time.Second, end)
	}
}
