// Package lease keeps the leases of a client alive, and ends what is on a lease before etcd can give it away.
// It knows that claims are on a lease, but neither their keys nor how they are made.
//
// A [Session] is one lease: its grant, its renewals, its two deadlines and its sentinel, a key whose end shows
// that of the lease. A [Pool] is the sessions of a client. [Cleanups] are changes that must be made in etcd although
// no caller waits for them: the end of the lease would make them, too. [Notices] follows the keys by which etcd, other
// clients and operators reach the client.
//
// What is on a session is a [Member]. Whoever knows the claims verifies them after each renewal, by Config.Verify.
// Their mutexes come before that of the session: none of a Member's exported methods is called while it is held.
package lease
