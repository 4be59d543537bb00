// Package objectguard keeps late owners away from objects in a store with
// conditional writes: Amazon S3 and what speaks its protocol, Google Cloud
// Storage, Azure Blob Storage. It imports the standard library and package
// fencing only; a [Store] is three methods around the client that you have.
//
// # What it does not do
//
// [Object] guards one object fully: its fence stands in its own content, and the
// write's own condition is the check. It does not guard two objects together, nor
// what is done beside it. An object that anything else writes, deletes or lets
// expire is not guarded: no lifecycle rule, replication from elsewhere or copy by
// hand may touch its name.
//
// [Gate] remembers the newest fence of each key in an object of its own, apart
// from any effect: it rejects early, and a new owner can seal it, but what it
// admitted can be delayed behind something newer.
//
// # How it works
//
// A guarded object begins with a line of text, and the data follows as it is:
//
//	fenced/1 data wHk3Jv0yQm2Zt8La,c1N5… Vb7d… 33;key="orders/42"
//
// These are the format and its version; "data", or "none" if the object was
// sealed before it was written, or deleted; the ids of the last 16 writes, the
// newest first; those of the last writes of the 8 owners before, or "-"; and the
// token of the owner (see [fencing.Token.String]). A write
// reads the object, refuses a token older than the one it finds, and replaces
// just the version that it has read. So between the check and the write nobody
// else's can be: of two owners that both passed the check the store lets one
// through, and the other reads again and finds who it was.
//
// The fence stands in the content, not in the object's metadata, since an ETag of
// S3 is in most cases a digest of the content alone: were an object sealed by
// metadata only, its ETag would stay what it was, and the old owner's If-Match
// would pass. Each write has an id of its own, so that no two versions are equal
// even if their data are.
//
// # When a reply is lost
//
// A store's client that sends a conditional write again, after one that was
// carried out without a reply, is told that the condition does not hold: by its
// own write. So after every refusal the object is read, and the ids in it tell. If
// the write's own is among them it was done. If it is not, but the one it was to
// follow is, another came first: then it was not done, and can never be, however
// late it arrives. The same is so of an owner that sleeps for long: what it wrote
// before stands there as its last. A write whose reply is lost is sent again, the very same, which
// can be carried out once only. Where none of that helps within the caller's
// context the error matches [fencing.ErrUnknown]; nothing else is ever reported as
// done, or as stale.
//
// # What does not fit in
//
// Each write sends the whole object, and holds it in memory. For large data put
// the data under a name that is used once (say, with a random part), and then
// write that name, with a digest, into a small guarded object: the write of the
// small one is what counts, and other tools find the data as it is.
package objectguard
