package testetcd

import (
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
)

// A server is restarted while other tests start processes, which have copies of its open
// files, and with them their locks, for an instant.
func TestRestartBesideForks(t *testing.T) {
	stop := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer forks.Wait()
	defer close(stop)
	synctest.Test(t, func(t *testing.T) {
		v := StartVirtual(t)
		for range 30 {
			v.Restart(t)
		}
	})
}
