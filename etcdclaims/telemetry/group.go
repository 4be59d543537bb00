package telemetry

import (
	"maps"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"go.opentelemetry.io/otel/metric"
)

// WatchGroup observes the members of a group, and how many of its partitions have an owner, are reserved
// for a member that is away, or are free. The
// name is an attribute of the counts. It sends no requests: it shows what the view knows, which is
// late by milliseconds, or by seconds if etcd does not answer. All processes see the same group,
// so one is enough; where several watch, take the maximum. Call stop before the view is closed.
func (t *Telemetry) WatchGroup(name string, view *group.View) (stop func()) {
	return track(t, t.groups, view, name)
}

// collectGroups observes the groups that are watched.
func (t *Telemetry) collectGroups(o metric.Observer) {
	t.mu.Lock()
	groups := maps.Clone(t.groups)
	t.mu.Unlock()
	for view, name := range groups {
		a := view.Assignment()
		states := map[string]int{"owned": 0, "reserved": 0, "free": 0}
		for _, owner := range a.Owners {
			switch {
			case owner.Instance != "":
				states["owned"]++
			case owner.Reserved != "":
				states["reserved"]++
			default:
				states["free"]++
			}
		}
		of := series{}.with(keyGroup, name)
		o.ObserveInt64(t.members, int64(len(a.Members)), t.options.of(of).observe...)
		for state, n := range states {
			o.ObserveInt64(t.partitions, int64(n), t.options.of(of.with(keyPartitions, state)).observe...)
		}
	}
}
