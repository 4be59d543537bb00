// Package group spreads a fixed number of slots of work over the members of a group, the
// processes that have joined it. Each slot, such as a partition of a log or a shard of a
// cache, is handled by one member at a time. These slots are partitions. They have nothing
// to do with the option etcdclaims.Slots, which is a semaphore.
//
//	member, err := group.Join(ctx, claims, group.Config{Group: "orders", Slots: 256},
//		func(ctx context.Context, slot int, claim *etcdclaims.Claim) error {
//			return consume(ctx, slot, claim) // until ctx ends
//		})
//	...
//	defer member.Leave(context.Background()) // hands the slots over
//
// Each slot that a member owns is an ordinary claim with a fence of its own. All members
// compute the same [Plan] from the members and owners that they see in etcd. A member
// claims the slots that the plan gives to it, and hands over the slots that the plan gives
// to others. Members that see different states of etcd wait for each other's claims, so no
// slot has two owners.
//
// # How a slot changes hands
//
// The target of a slot is the member that should own it by the plan. The target waits in
// line for the claim of the slot. When the owner sees the target there, it ends the
// context of the slot's handler and waits until the handler has returned. Then it releases
// the claim. The release hands the claim over in one transaction, so the slot is never
// free. While the target does not wait in line, for example because it is frozen, the
// owner keeps the slot. Only an owner that leaves the group releases such a slot, after a
// short wait.
//
// If a member dies, its slots are free when its lease lapses. The others claim them at
// most TTL + 1 s after its last renewal. If the target of a slot is dead, too, the slot
// also waits for the TTL of the target. If the target lives but cannot claim the slot, the
// slot waits for up to 1.5 TTL more. A member leaves the list of members if, for about
// 1.3 TTL, it can neither claim a slot of which it is the target nor join its line. It
// keeps the slots that it owns, and joins again after a pause.
//
// # What is not guaranteed
//
// Handlers of one slot can overlap if a process was stopped past the end of its claim.
// Fence what a handler writes: with the claim's Txn, or with its Token and a gate of
// package fencing. A handler that does not return after its context has ended delays the
// next one by one drain of its client (etcdclaims.Config.Drain) and one TTL. A handler
// that returns early is called again.
//
// Weights, cool-down and budget affect the plan, not the safety of claims. If members have
// different settings, a slot still has one owner, but more slots may move.
//
// # Number of slots
//
// The number of slots never changes. Join refuses another number with [ErrSlots]. To
// change the number, start a group with a new name, such as orders-512, and let the old
// one drain; or end all members, call [Remove], and start again.
package group
