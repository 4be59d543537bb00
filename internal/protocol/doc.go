// Package protocol is the protocol of claims. It has no I/O: a step builds a request from what is
// known, and judges the reply. Package etcdclaims sends the requests.
//
// Each step is a type with Build and Judge. Those of an acquisition work on a [Try]: [Take],
// [TakeAll], [Look], [Join], [Advance], [Confirm], [Undo], [Leave] and [Drop]. What is different
// between keys that one caller has, that are divided into slots, and that callers share is a [Mode].
// Who decides between the steps of the end of a claim is an [Ending].
//
// What an attempt decides between its requests is an [Acquisition], or for several keys [AllOrNone]:
// Step takes an event in, and returns the action that its driver carries out.
//
// The package imports neither context, sync nor time, no logger, no network and no client of etcd.
package protocol
