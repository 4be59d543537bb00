package middleware

import (
	"sync"
	"time"
)

// reachability is implemented by claims that know whether etcd answers, such as
// *etcdclaims.Client. The method does no I/O.
type reachability interface{ Unreachable() error }

// outageCheck is how often a waiting process checks whether etcd answers.
const outageCheck = time.Second

// outageWatch calls failed once for each outage while this process waits for a
// key. The wait itself continues throughout an outage and returns nothing.
type outageWatch struct {
	claims reachability // nil if the claims do not know
	key    string
	failed func(error)

	reported bool // the present outage was reported; used by one goroutine at a time
}

// begin starts the watch. The returned function stops it, and waits for a running
// call of failed.
func (o *outageWatch) begin() (end func()) {
	if o.claims == nil || o.failed == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(outageCheck)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				o.check()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
}

func (o *outageWatch) check() {
	err := o.claims.Unreachable()
	if err != nil && !o.reported {
		o.failed(leadingError(o.key, err))
	}
	o.reported = err != nil
}
