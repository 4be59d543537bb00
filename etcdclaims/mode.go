package etcdclaims

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/protocol"
)

// A kind is how a call wants its key: alone, in slots, or shared. Options of its own make it.
type kind interface {
	// of returns the mode of a call for a key.
	of(l protocol.Layout, key string) (protocol.Mode, error)
	// check returns why the kind cannot be, or nil.
	check() error
	// with is which options go with the kind.
	with() optionSet
	String() string
}

// alone is the kind of a call without Slots and Shared.
type alone struct{}

func (alone) of(l protocol.Layout, key string) (protocol.Mode, error) {
	return protocol.Exclusive{Layout: l, Key: key}, nil
}

func (alone) check() error { return nil }

func (alone) with() optionSet { return ^optionSet(0) }
func (alone) String() string  { return "a call" }

// optionSet is a set of options that a call was given.
type optionSet uint16

const (
	optionTTL optionSet = 1 << iota
	optionManual
	optionReentrant
	optionSupersede
	optionSuspectable
	optionPrefer
	optionMaxHold
	optionMinHold
	optionProgress
	optionIf
	optionThen
	optionNote
	optionLazy
)

var optionNames = [...]string{
	"TTL", "Manual", "Reentrant", "Supersede", "Suspectable", "Prefer", "MaxHold", "MinHold", "Progress", "If", "Then", "Note", "LazyRelease",
}

// goTogether says which options go with an option: with an option that is not named here goes none.
var goTogether = map[optionSet]optionSet{
	optionTTL:         ^optionSet(0),
	optionManual:      ^(optionSuspectable | optionLazy),
	optionReentrant:   ^optionSupersede,
	optionSupersede:   ^optionReentrant,
	optionSuspectable: ^(optionManual | optionMinHold | optionIf | optionThen),
	optionPrefer:      ^(optionIf | optionThen | optionNote | optionLazy),
	optionMaxHold:     ^optionSet(0),
	optionMinHold:     ^(optionSuspectable | optionLazy),
	optionProgress:    ^optionSet(0),
	optionIf:          ^(optionSuspectable | optionPrefer),
	optionThen:        ^(optionSuspectable | optionPrefer),
	optionNote:        ^optionPrefer,
	optionLazy:        ^(optionManual | optionPrefer | optionMinHold),
}

// give notes that the call was given an option, unless its value says nothing.
func (o *acquireOptions) give(option optionSet, says bool) {
	if says {
		o.given |= option
	} else {
		o.given &^= option
	}
}

// setKind sets the kind of the call.
func (o *acquireOptions) setKind(k kind) {
	if o.kind != (alone{}) && o.kind.String() != k.String() {
		o.clash = o.kind
	}
	o.kind = k
}

// checkTogether refuses options that do not go together, and those that do not go with the kind of
// the call.
func (o *acquireOptions) checkTogether() error {
	if o.clash != nil {
		return fmt.Errorf("etcdclaims: %v excludes %v", o.kind, o.clash)
	}
	if err := o.kind.check(); err != nil {
		return err
	}
	for at, name := range optionNames {
		option := optionSet(1) << at
		if o.given&option == 0 {
			continue
		}
		if o.kind.with()&option == 0 {
			return fmt.Errorf("etcdclaims: %v excludes %s", o.kind, name)
		}
		for at, other := range optionNames {
			if also := optionSet(1) << at; o.given&also&^option != 0 && goTogether[option]&also == 0 {
				return fmt.Errorf("etcdclaims: %s excludes %s", name, other)
			}
		}
	}
	return nil
}
