// Package option seals the options of acquiring calls: which option goes with
// which call is part of its type, so that a wrong pair does not compile. The
// package knows nothing of etcd, so that middleware can take the options.
package option

// AcquireOption is an option of calls that claim one key.
type AcquireOption interface{ acquire() }

// WorkOption is an option of calls that begin work.
type WorkOption interface{ work() }

// AllOption is an option of calls that claim all of some keys or none.
type AllOption interface{ all() }

// ManyOption is an option of calls that claim several keys, together or each for
// itself.
type ManyOption interface {
	AllOption
	each()
}

// A type is an option of each kind that it embeds the mark of.
type (
	// ForAcquire marks an AcquireOption.
	ForAcquire struct{}
	// ForWork marks a WorkOption.
	ForWork struct{}
	// ForAll marks an AllOption.
	ForAll struct{}
	// ForMany marks a ManyOption.
	ForMany struct{ ForAll }
)

// OwnKey lets packages of this module claim the keys that are kept for them; see
// keyspace.Unclaimable. It is no option for users: they cannot import this package.
type OwnKey struct {
	ForAcquire
	ForWork
	ForMany
}

// Concern names what the conditions and operations of a call concern. Calls without a name in
// common may share a round trip: etcd evaluates the conditions of all before it carries out
// any, so there must be an order in which it could carry out one after the other with the
// same result. The names mean nothing to etcd. It is no option for users.
type Concern struct {
	ForAcquire
	Names []string
}

// Labels puts labels of the process into the value of the claim and of its place in line, where
// any process can read them. An empty list is written too, and nil is not. It is no option for users.
type Labels struct {
	ForAcquire
	Labels []string
}

func (ForAcquire) acquire() {}
func (ForWork) work()       {}
func (ForAll) all()         {}
func (ForMany) each()       {}
