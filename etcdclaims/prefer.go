package etcdclaims

// Prefer sets the caller's preference for the key, from 0 up. Without Prefer it is 0.
// Use it for the process that should hold the key when there is a choice: in the near
// zone, or of the newest version.
//
// The release of a claim with Prefer hands the key to the most preferred caller in line,
// whatever the claim's own preference. Callers with equal preferences have the key in the
// order in which they came. In all other cases the order of the line does not depend on
// preferences. A claim without Prefer goes to the first in line. So does a key that is
// free because its holder has died or was closed, because its MinHold is over, or by
// admin.ForceRelease.
//
// No holder gives way to a more preferred caller: each keeps the key for as long as it likes.
// A program that wants the key to move releases the claim itself, for example when
// admin.Line shows a caller with a greater preference. An operator stops the holder.
// [MaxHold] bounds each term.
//
// A caller with Prefer waits in line in etcd, even behind a claim of its own
// client. Earlier versions of this package ignore preferences. Prefer excludes Slots,
// Shared, If, Then and Note. A passthrough client ignores the option.
func Prefer(preference int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.Prefers, o.Preference = true, preference; o.give(optionPrefer, true) }}
}
