package sched

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// specsPerRead is how many registrations are read by one request.
const specsPerRead = 64

// otherVersions returns the jobs in code of which another version is registered, from one look to the
// next. The owner has registered it, or has it unchanged from an owner before it, or does not have the job.
// A job that agrees at two looks is not read again in the same ownership: the owner registers its jobs once.
func (s *Scheduler) otherVersions(ctx context.Context, of map[string]*awaited, term int64) (differ []string, err error) {
	var open []string
	for name, a := range of {
		if a.job.defined == 0 && a.agreed != term {
			open = append(open, name)
		}
	}
	for some := range slices.Chunk(open, specsPerRead) {
		ops := make([]clientv3.Op, len(some))
		for i, name := range some {
			ops[i] = clientv3.OpGet(s.keys.Spec(name))
		}
		resp, err := retry.Read(ctx, core.Of(s.claims).KV(), readTime, ops...)
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			kvs := txn.Kvs(resp, i)
			if len(kvs) == 0 { // notRun finds it
				continue
			}
			is, err := tick.Decode[spec](string(kvs[0].Key), kvs[0].Value)
			if err != nil || is.Hash == "" { // the owner logs it
				continue
			}
			if of[name].compare(is, kvs[0].ModRevision, term) {
				differ = append(differ, name)
			}
		}
	}
	return differ, nil
}

// compare notes whether the registered version of the job differs from this one. It reports whether
// they differed at the look before, too: during the first one the owner may be about to register it.
func (a *awaited) compare(is spec, rev, term int64) (differs bool) {
	again := a.compared == term
	before := a.differs
	a.compared, a.differs, a.versions = term, is.Hash != a.job.hash(), ""
	if again && !before && !a.differs {
		a.agreed = term
	}
	if a.differs {
		by := "by the owner"
		if rev < term {
			by = "by an earlier owner; this one may not have the job"
		}
		a.versions = fmt.Sprintf("(registered at %s %s: %s; here: %s)", stamp(is.Since), by,
			versionText(is.Schedule, is.Revision), versionText(a.job.text(), a.job.Revision))
	}
	return again && before && a.differs
}

// versionText names a version of a job.
func versionText(schedule, revision string) string {
	text := "schedule " + strconv.Quote(limitText(schedule))
	if revision != "" {
		text = "revision " + strconv.Quote(limitText(revision)) + ", " + text
	}
	return text
}
