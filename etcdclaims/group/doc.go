// Package group spreads a fixed number of partitions over the members of a group, the
// processes that have joined it. Each partition, such as one of a log or a shard of a
// cache, is handled by one member at a time. They have nothing
// to do with the option etcdclaims.Slots, which is a semaphore.
//
//	member, err := group.Join(ctx, claims, group.Config{Group: "orders", Partitions: 256},
//		func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
//			return consume(ctx, partition, claim) // until ctx ends
//		})
//	...
//	defer member.Leave(context.Background()) // hands the partitions over
//
// Each partition that a member owns is an ordinary claim with a fence of its own. All members
// compute the same [Plan] from the members and owners that they see in etcd. A member
// claims the partitions that the plan gives to it, and hands over the partitions that the plan gives
// to others. Members that see different states of etcd wait for each other's claims, so no
// partition has two owners.
//
// # How a partition changes hands
//
// The target of a partition is the member that should own it by the plan. The target waits in
// line for the claim of the partition. When the owner sees the target there, it ends the
// context of the partition's handler and waits until the handler has returned. Then it releases
// the claim. The release hands the claim over in one transaction, so the partition is never
// free. While the target does not wait in line, for example because it is frozen, the
// owner keeps the partition. Only an owner that leaves the group releases such a partition, after a
// short wait.
//
// If a member dies, its partitions are free when its lease lapses. The others claim them at most
// TTL + 1 s after its last renewal, mostly after about a second with Config.Suspectable. If the
// target of a partition is dead, too, the partition also waits for the TTL of the target. If the
// target lives but cannot claim the partition, the partition waits for up to 1.5 TTL more. A
// member leaves the list of members if, for about 1.3 TTL, it can neither claim a partition of
// which it is the target nor join its line. It keeps the partitions that it owns, and joins again
// after a pause.
//
// # What is not guaranteed
//
// Handlers of one partition can overlap if a process was stopped past the end of its claim.
// Fence what a handler writes: with the claim's Txn, or with its Token and a gate of
// package fencing. A handler that does not return after its context has ended delays the
// next one by one drain of its client (etcdclaims.Config.Drain) and one TTL. A handler
// that returns early is called again.
//
// Weights, cool-down and budget affect the plan, not the safety of claims. If members have
// different settings, a partition still has one owner, but more partitions may move.
//
// # Number of partitions
//
// The number of partitions never changes. Join refuses another number with [ErrPartitions]. To
// change the number, start a group with a new name, such as orders-512, and let the old
// one drain; or end all members, call [Remove], and start again.
package group
