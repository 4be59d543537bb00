package doctor

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// One row for each member says with what its version was compared.
func TestVersions(t *testing.T) {
	t.Parallel()
	of := func(endpoint, version string) answer {
		return answer{endpoint: endpoint, status: &clientv3.StatusResponse{Version: version}}
	}
	for _, c := range []struct {
		answers []answer
		want    []Finding
	}{
		{[]answer{of("h1", "3.7.3")}, []Finding{{Level: OK, Detail: "h1 runs etcd 3.7.3, without known faults"}}},
		{
			[]answer{of("h1", "3.6.10"), of("h2", "3.7.3"), {endpoint: "h3", err: errors.New("away")}, of("h4", "3.7.0")},
			[]Finding{
				{Level: Warning, Detail: "h1 runs etcd 3.6.10, older than etcd 3.7.3 of h2", Remedy: "finish the upgrade"},
				{Level: OK, Detail: "h2 runs etcd 3.7.3, the newest of the members, without known faults"},
				{Level: Warning, Detail: "h4 runs etcd 3.7.0, older than etcd 3.7.3 of h2; it has a fault: ", Remedy: "finish the upgrade; upgrade etcd to 3.7.1"},
			},
		},
		{[]answer{of("h1", "3.10.0"), of("h2", "3.9.9")}, []Finding{
			{Level: OK, Detail: "h1 runs etcd 3.10.0, the newest of the members, without known faults"},
			{Level: Warning, Detail: "h2 runs etcd 3.9.9, older than etcd 3.10.0 of h1", Remedy: "finish the upgrade"},
		}},
	} {
		var e Examination
		e.versions(c.answers)
		if len(e.Findings) != len(c.want) {
			t.Fatalf("%+v", e.Findings)
		}
		for i, f := range e.Findings {
			if w := c.want[i]; f.Check != "versions" || f.Level != w.Level || f.Remedy != w.Remedy || !strings.HasPrefix(f.Detail, w.Detail) {
				t.Errorf("%+v, want %+v", f, w)
			}
		}
	}
}

// A full etcd renews and releases what is held: see TestNoSpace of etcdclaims.
func TestFullIsNoLoss(t *testing.T) {
	t.Parallel()
	var e Examination
	e.space("h1:2379", &clientv3.StatusResponse{DbSize: 1900 * mib, DbSizeInUse: 1900 * mib, DbSizeQuota: 2048 * mib})
	e.has(t, Warning, "space h1:2379", "when it is full nothing more can be claimed; held claims are still renewed and released")
}
