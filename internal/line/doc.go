// Package line is who waits for a key: in line, in etcd, and behind the claims of their own client. It takes places in line,
// waits for notices and for what must change, and advances.
//
// A releaser notifies the waiter that it hands the key to. The notice is a key under the
// prefix that the waiter's client watches anyway, and is put in the transaction that puts
// the claim. So the event proves the claim, and its revision is the fence.
//
// No notice is missed. The watch begins with the client's first session, before any
// caller can be in line. After an interruption the notices are read. The verification
// that follows each renewal finds notices that a deaf watch did not deliver.
//
// # Behind claims of the same client
//
// A caller that wants a key that a claim of the same session of its client holds does not
// join the line in etcd. It becomes a local waiter of that term. A release hands the key to the first
// local waiter in one transaction under its guard, whose revision is the new fence:
// no event and no read. The other local waiters then wait for the new term.
//
// That must not pass waiters of other clients. The arrival of a local waiter is the
// revision of the first reply to any request that was sent after it came. A place in
// line that is younger than the arrival was taken later. A local waiter that cannot
// be shown to have come first goes to the end of the line. So do all, in their
// order, if the key goes to another client or the term ends otherwise.
package line
