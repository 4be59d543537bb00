package doctor

import (
	"strings"

	"github.com/coreos/go-semver/semver"
	"github.com/etcdclaims/claims/internal/serverfault"
)

// versions judges the version of each member: against the newest of them, and against the
// faults that are known.
func (e *Examination) versions(answers []answer) {
	answers = answered(answers)
	var newest answer
	for _, a := range answers {
		if newest.status == nil || older(newest.status.Version, a.status.Version) {
			newest = a
		}
	}
	for _, a := range answers {
		version := a.status.Version
		var is, remedies []string
		if older(version, newest.status.Version) {
			is = append(is, "older than etcd "+newest.status.Version+" of "+newest.endpoint)
			remedies = append(remedies, "finish the upgrade")
		}
		if fault, fixedIn, err := serverfault.Of(version); err == nil && fault != "" {
			is = append(is, "it has a fault: "+fault)
			remedies = append(remedies, "upgrade etcd to "+fixedIn)
		}
		switch {
		case len(is) > 0:
			e.Add(Warning, "versions", strings.Join(remedies, "; "), "%s runs etcd %s, %s", a.endpoint, version, strings.Join(is, "; "))
		case len(answers) > 1:
			e.Well("versions", "%s runs etcd %s, the newest of the members, without known faults", a.endpoint, version)
		default:
			e.Well("versions", "%s runs etcd %s, without known faults", a.endpoint, version)
		}
	}
}

// older reports whether one version is older than another. A version that cannot be parsed is not
// compared.
func older(version, than string) bool {
	a, err := semver.NewVersion(version)
	b, err2 := semver.NewVersion(than)
	return err == nil && err2 == nil && a.LessThan(*b)
}
