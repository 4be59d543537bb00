package work

import (
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/option"
)

// Option is an option of the calls that begin work: AtMostOnce and Again, and of package
// etcdclaims TTL, Manual, MaxHold, Progress, Note, Supersede, If and Then. Another option does
// not compile.
type Option = option.WorkOption

// options are those of one call.
type options struct {
	atMostOnce bool
	again      []State
}

type workOption struct {
	option.ForWork
	set func(*options)
}

// AtMostOnce keeps work from being run again after its owner has died, or lost the claim,
// during an attempt: the work is dead instead. The guarantee lasts as long as the record;
// see Config.DeadRetention. Again and Runner.Retry override it.
//
// An attempt that returns an error or panics is still retried. Mark the error with
// etcdclaims.Permanent to prevent that.
func AtMostOnce() Option { return workOption{set: func(o *options) { o.atMostOnce = true }} }

// Again begins work even if its record is in one of the states. The states are
// StateDone, StateDead, and StateFailed, whose NotBefore is then ignored. No
// states means all three.
//
// Work.Attempt continues from the earlier attempts. Config.MaxAttempts counts
// from here if the work was done or dead. Work.Previous returns the earlier
// record with its result. The new attempt replaces that record: if the attempt fails
// or is given back, the work is no longer done.
func Again(states ...State) Option {
	if len(states) == 0 {
		states = []State{StateDone, StateDead, StateFailed}
	}
	return workOption{set: func(o *options) { o.again = append(o.again, states...) }}
}

// split separates the options of work from those of claims.
func split(opts []Option) (o options, claims []etcdclaims.AcquireOption, err error) {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case nil:
		case workOption:
			opt.set(&o)
		case etcdclaims.AcquireOption:
			claims = append(claims, opt)
		default: // a type that embeds the interface
			return o, nil, fmt.Errorf("work: %T is not an option of this package", opt)
		}
	}
	for _, s := range o.again {
		if s != StateDone && s != StateDead && s != StateFailed {
			return o, nil, fmt.Errorf("Again: work in state %q is begun without it, or not at all: the states are done, dead and failed", s)
		}
	}
	return o, claims, nil
}
