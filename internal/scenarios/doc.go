// Package scenarios has tests of locks that others have written, run on claims and,
// beside them, on the Mutex of etcd's client: the lock example of etcd's contrib
// directory, and the lock workloads of Jepsen's tests of etcd. It also has a test in which an
// operator deletes each kind of key while it is in use, and tests of what a process shows of
// failures, of an outage and of its end. It has no code.
//
// The tests of other packages that need an etcd are here, too: those of variants of etcd, of the
// refusals, of the permissions that docs/permissions.md names, of recorded histories, of older
// releases of etcd, and of the faults in upstream.md. Each test binary links the etcd server,
// which takes seconds.
//
//	go test ./internal/scenarios -v
//	go test ./internal/scenarios -run TestErased/queue.md
//	go test ./internal/scenarios -run TestJepsen -v -workload lock-set -nemesis pause -time-limit 120s
//	go test ./internal/scenarios -run TestJepsen -v -processes -timeout 1h    # real time, five members, each a process
package scenarios
