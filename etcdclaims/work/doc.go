// Package work does things once across many processes. A piece of work has a key, such as
// "invoice/42". A process that begins it has a claim on the key (package etcdclaims), and a durable
// record of the attempt. The record outlives the process: it has the outcome, the result, and when
// the next attempt may begin.
//
//	works, err := work.New(claims, work.Config{})
//	// ...
//	err = works.TryRun(ctx, "invoice/42", func(ctx context.Context, w *work.Work) error {
//		return w.Complete(ctx, clientv3.OpPut("/paid/42", "100 EUR"))
//	})
//	if errors.Is(err, etcdclaims.ErrHeld) || errors.Is(err, work.ErrDone) {
//		return nil // another process does it, or has done it
//	}
//
// There are three kinds of calls. Each has a variant without Try that waits in line while the key
// is held:
//
//   - [Runner.TryRun] calls a function and records the outcome.
//   - [Runner.TryOnce] also stores the result. A later call returns it.
//   - [Runner.TryBegin] returns a [Work], which [Work.Complete], [Work.Fail] or [Work.Release]
//     ends.
//
// # States
//
// Work without a record was never begun, or its record has expired. A record is claimed while an
// owner has the work, and then done, failed, dead or free:
//
//   - done: it is not begun again while the record exists; see Config.Retention and [Again].
//   - failed: the next attempt may begin at Record.NotBefore. See Config.Backoff and
//     etcdclaims.RetryAfter.
//   - dead: it has failed for good: after Config.MaxAttempts, with an error marked by
//     etcdclaims.Permanent, or with [AtMostOnce] because its owner died.
//   - free: it was given back, and the attempt does not count.
//
// Work whose owner has died is an orphan. The next caller begins it again, as the next attempt.
//
// # For operators
//
// [Runner.Records] and [Runner.Orphans] list records. [Runner.Retry] lets work be begun again at once,
// and [Runner.Forget] deletes its record.
//
// # What is not guaranteed
//
// A function can run more than once. If its process dies between an effect and the record of it, the
// next owner runs it again, unless the work is [AtMostOnce]. Operations of [Work.Complete] are carried
// out if and only if the work is done. Fence every other effect; see package etcdclaims.
package work
