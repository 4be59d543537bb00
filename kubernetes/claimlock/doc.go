// Package claimlock elects the leader of Kubernetes controllers with claims on etcd.
// [Lock] implements [resourcelock.Interface], so that the unmodified
// [leaderelection.LeaderElector] of client-go, and with it every controller that uses
// it, elects by a claim instead of a Lease object.
//
//	lock, err := claimlock.New(claims, claimlock.Config{Key: "team-a/controller", Identity: hostname})
//	// ...
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) {
//				claim := lock.Claim()         // fences writes: claim.Txn, claim.Token
//				ctx, cancel := lock.Bind(ctx) // ends with the claim, and carries its token
//				defer cancel()
//				run(ctx, claim)
//			},
//			OnStoppedLeading: func() { os.Exit(1) },
//		},
//	})
//
// # How the calls of the elector map to a claim
//
//   - Get reads the record of the election and, in the same transaction, whether the
//     key is claimed. If it is not, the record names no holder, and the elector tries
//     to lead at once, without waiting for LeaseDuration.
//   - Create, and Update by a candidate, try to acquire the key, on the condition that
//     the record is as the last Get returned it. The record is stored in the
//     transaction that makes the claim. If the key is claimed, Update returns a
//     conflict. A candidate whose own clock says that the leader's time is over is
//     refused: only etcd's lease decides that.
//   - Update by the leader renews the lease of the claim, and stores the record under
//     the condition that the claim owns its key. No other call renews the lease. So a
//     process whose elector hangs stops leading, although the process lives.
//   - Update without a holder, which ReleaseOnCancel sends, releases the claim.
//
// # What is guaranteed
//
//   - At most one candidate holds the claim at any revision of etcd.
//   - Each leadership has a greater fence than every earlier one. A write under the
//     claim ([etcdclaims.Claim.Txn], package etcdguard), or to a resource that checks
//     the token, is refused once there is a newer leader. That holds for a leader that
//     was paused, cut off or slow, whatever its clock and its elector say.
//   - A leadership never comes back. If the claim is lost, the Lock refuses to lead
//     until the elector has stopped, so that no work goes on under a new fence.
//   - LeaderTransitions rises by one with each leadership, also across the death of
//     all candidates: the record has no lease. A leadership that ended before its
//     candidate learned of it counts.
//   - After the death of the leader another one leads within LeaseDuration + 1 s +
//     2.2 RetryPeriod, or after etcd has lost its leader within twice LeaseDuration.
//     After a release it leads within 2.2 RetryPeriod. The last part of each is the
//     longest pause between two tries of client-go. A leader whose requests arrive while
//     no reply does keeps the key for up to RetryPeriod + RenewDeadline longer.
//
// # What is not guaranteed
//
//   - Writes that carry no fence. Those of most controllers to the API server carry
//     none. For them the exclusion is that of client-go: the old elector stops in time
//     unless its process is paused.
//   - That the context of OnStartedLeading ends when the claim is lost. client-go ends
//     it when renewals have failed for RenewDeadline. [Lock.Bind] ends it at once.
//   - A leader that stops before its claim expires, by client-go's settings alone. It
//     does if RenewDeadline + RetryPeriod is less than 0.99 LeaseDuration minus
//     max(500 ms, LeaseDuration/10). The defaults of client-go (15 s, 10 s, 2 s) fit.
//   - The same elector cannot lead again at once if it stopped without a release. The
//     key stays held until its lease lapses, because the work of the first leadership
//     may still run.
//   - Coordinated election ([leaderelection.LeaderElectionConfig]) is not supported: it
//     needs LeaseCandidate objects.
//
// LeaseDuration is the TTL of the claim, in full seconds. Below 5 s the client needs
// [etcdclaims.Config].AllowShortTTL.
//
// # Where the fence is
//
// No field of the record can hold it. LeaderTransitions counts by one, and dashboards
// read it as that. HolderIdentity must equal the identity of the elector. Strategy and
// PreferredHolder steer coordinated election: a PreferredHolder makes a leader step
// down. So the stored JSON has one more field beside those of the record, fence, which
// the first renewal writes right after the acquisition. Programs take the fence from
// [Lock.Claim].
package claimlock

import (
	// For links in the documentation.
	_ "k8s.io/client-go/tools/leaderelection"
)
