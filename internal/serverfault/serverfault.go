// Package serverfault lists faults of etcd servers that claims are better off
// without, by version.
package serverfault

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
)

// The faults. No claim is given away by them, since what decides is asked by a
// transaction that writes. But they make a lost claim look held for longer, and
// show keys to strangers.
const (
	staleReads    = "a member that was paused may answer linearizable reads from its past (etcd-io/etcd#20418)"
	watchOverRead = "a watch may show keys that its user has no permission to read (GHSA-xg4h-6gfc-h4m8)"
	endOfLife     = "etcd before 3.5 gets no fixes any more"
)

// oldestLine is the first minor version of etcd 3 that gets fixes.
const oldestLine = 5

// floors has for minor versions of etcd 3 the patch to run at least, and the
// fault of those before it. Lines that are not listed are younger than all of
// these faults.
var floors = map[int64]struct {
	patch int64
	fault string
}{
	5: {28, staleReads},
	6: {9, staleReads},
	7: {1, watchOverRead},
}

// Of returns what is wrong with an etcd of that version, and the version that
// fixes it. It returns nothing for a good one. The error is not nil when the
// version cannot be parsed.
//
// What follows the patch in a version does not count: etcd itself has release
// candidates of the first patch of a line only, and others append who built it.
func Of(version string) (fault, fixedIn string, err error) {
	v, err := semver.NewVersion(version)
	if err != nil {
		return "", "", err
	}
	floor, listed := floors[v.Minor]
	switch {
	case v.Major > 3:
		return "", "", nil
	case v.Major < 3 || v.Minor < oldestLine:
		fault = endOfLife
		if v.Major == 3 && v.Minor == 4 && v.Patch < 42 {
			fault += "; " + staleReads // what older lines have, nobody looked into
		}
		return fault, fmt.Sprintf("3.%d.%d", oldestLine, floors[oldestLine].patch), nil
	case listed && v.Patch < floor.patch:
		return floor.fault, fmt.Sprintf("3.%d.%d", v.Minor, floor.patch), nil
	}
	return "", "", nil
}
