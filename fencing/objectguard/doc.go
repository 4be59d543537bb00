// Package objectguard refuses the writes of former owners to objects in a store
// with conditional writes: Amazon S3 and compatible servers, Google Cloud Storage
// and Azure Blob Storage. It imports only the standard library and package
// fencing. A [Store] is three methods around your existing client.
//
//	object, err := objectguard.New(store, "ledgers/eu.json")
//	...
//	err = object.Write(ctx, token, data) // fencing.ErrStale once a newer owner wrote or sealed it
//
// # What is not guaranteed
//
// [Object] guards one object fully: the object contains its fence, and the
// condition of the write is the check. It does not guard two objects together,
// nor any effect besides the object. An object that anything else writes, deletes
// or lets expire is not guarded: keep its name away from lifecycle rules,
// replication from elsewhere and manual copies.
//
// [Gate] stores the newest fence of each key in an object of its own, apart from
// any effect. It is an early reject, and a new owner can seal it. But a request
// that it admitted can be delayed behind something newer.
//
// # Format
//
// A guarded object begins with a line of text, which the data follow unchanged:
//
//	fenced/1 data wHk3Jv0yQm2Zt8La,c1N5… Vb7d… 33;key="orders/42"
//
// The line has five fields: the format and its version; "data", or "none" if the
// object was deleted, or sealed before its first write; the ids of the last 16
// writes, newest first; the ids of the last writes of the 8 previous owners, or
// "-"; and the owner's token (see [fencing.Token.String]).
//
// A write reads the object and refuses a token older than the one that it finds.
// Then it replaces exactly the version that it has read. A further write of the same owner
// replaces the version that its last write made, without another read. So no other write can
// come between the check and the write. If two owners both pass the check, the
// store lets one through. The other reads again, and finds the first.
//
// The fence is in the content and not in the object's metadata, because an S3
// ETag is usually a digest of the content alone. If only the metadata were
// sealed, the ETag would stay the same, and the previous owner's If-Match would
// pass. Each write has its own id, so that no two versions are equal even if
// their data are.
//
// # When a reply is lost
//
// A storage client may repeat a conditional write after its reply was lost. The store
// then reports that the condition does not hold, because of the client's own first
// write. So after every such refusal the package reads the object and looks at the ids.
// If they contain the write's own id, the write was done. If they lack it, and the id
// that the write was to follow is among them but not the newest, another write came first;
// the write was not done, and never will be. If they contain neither, the outcome is
// unknown. The ids of previous owners answer the same question
// for an owner that was suspended for a long time.
//
// A write without a reply is sent again unchanged, and can be carried out only once. If
// the outcome is still unknown when the caller's context ends, or after eight tries,
// the error matches [fencing.ErrUnknown]. A write is never reported as done or stale
// unless it is.
//
// # Large data
//
// Each write sends the whole object, and holds it in memory. For large data,
// write the data under a name that is used once, for example one with a random
// part. Then write that name, with a digest, into a small guarded object. The
// small write decides, and other tools find the data unchanged.
package objectguard
