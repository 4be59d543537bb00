package claimtest

import "github.com/etcdclaims/claims/internal/steps"

// A Kind is the purpose of a request to etcd. A transaction that carries several
// requests, as clients send them under load, has several kinds. A plain request without
// a constant here has the name of etcd's method in lower case: "put", "deleterange".
// Requests by which clients agree among themselves match [Every] only.
type Kind = steps.Kind

// Kinds of requests.
const (
	Every Kind = "" // all requests

	Acquire Kind = steps.Acquire // claims a key or joins its line, for any acquiring method
	Release Kind = steps.Release // gives a key up: frees it, or hands it to the next in line
	Ending  Kind = steps.Ending  // ends work: Work.Complete, Fail, Release
	Verify  Kind = steps.Verify  // reads whether claims are still owned; also other reads at one revision
	Other   Kind = steps.Other   // any other transaction, such as yours by Claim.Txn

	Grant     Kind = steps.Grant     // grants a lease
	KeepAlive Kind = steps.KeepAlive // renews a lease
	Revoke    Kind = steps.Revoke    // revokes a lease

	Range Kind = steps.Range // a plain read
	Watch Kind = steps.Watch // opens a watch, whose messages are the replies
)
