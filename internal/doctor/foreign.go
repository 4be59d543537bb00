package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lent is what was read of a lease of another program.
type lent struct {
	ttl time.Duration
	of  string // the beginning of its keys
}

// leases looks for those of other programs. Of the leases that sessions do not have the first ones
// are read: which are of claims only their keys show.
func (e *Examination) leases(ctx context.Context) {
	all, err := e.etcd().Leases(ctx)
	if e.failed(Warning, "leases", "cannot be listed", err) {
		return
	}
	own, err := e.etcd().Get(ctx, e.Claims.Prefix()+"session/", clientv3.WithPrefix(), clientv3.WithLimit(int64(e.Limit)))
	if e.failed(Warning, "leases", "those of the sessions cannot be read", err) {
		return
	}
	sessions := map[clientv3.LeaseID]bool{}
	for _, kv := range own.Kvs {
		sessions[clientv3.LeaseID(kv.Lease)] = true
	}
	var unknown []clientv3.LeaseID
	for _, l := range all.Leases {
		if !sessions[l.ID] {
			unknown = append(unknown, l.ID)
		}
	}
	slices.Sort(unknown)
	if len(unknown) > 0 {
		retry.Sleep(ctx, patience) // one that was just granted gets its keys
	}
	const atOnce = 8
	var checks []check
	asked := unknown[:min(len(unknown), e.Leases)]
	read := make([]*clientv3.LeaseTimeToLiveResponse, len(asked))
	for i, id := range asked {
		checks = append(checks, func(e *Examination, ctx context.Context) {
			lease, err := e.etcd().TimeToLive(ctx, id, clientv3.WithAttachedKeys())
			if !errors.Is(err, rpctypes.ErrLeaseNotFound) && !e.failed(Warning, "leases", "cannot be read", err) {
				read[i] = lease
			}
		})
	}
	before := len(e.Findings)
	if e.beside(ctx, atOnce, checks); len(e.Findings) > before {
		e.Findings = e.Findings[:before+1] // one shows what is wrong
		return
	}
	var foreign []lent
	bare := 0
	for _, lease := range read {
		switch {
		case lease == nil || lease.TTL < 0: // it has ended
		case len(lease.Keys) == 0:
			bare++
		case !strings.HasPrefix(string(lease.Keys[0]), e.Claims.Prefix()):
			foreign = append(foreign, lent{time.Duration(lease.GrantedTTL) * time.Second, beginning(string(lease.Keys[0]))})
		}
	}
	e.judgeLeases(len(all.Leases), len(asked), len(unknown), bare, foreign)
}

// judgeLeases judges the leases of other programs among those that were asked for, of all unknown ones. Bare
// ones have no keys: whose they are is not known, and claims leave some, too.
func (e *Examination) judgeLeases(all, asked, unknown, bare int, foreign []lent) {
	const few = 50
	detail := fmt.Sprintf("%d, none of the %d that were read is of another program", all, asked)
	if len(foreign) > 0 {
		slices.SortFunc(foreign, func(a, b lent) int { return int(a.ttl - b.ttl) })
		var of []string
		for _, o := range foreign {
			of = append(of, o.of)
		}
		slices.Sort(of)
		detail = fmt.Sprintf("%d of the %d that were read, of %d, are of other programs, with TTLs from %s to %s; keys below %s",
			len(foreign), asked, all, foreign[0].ttl, foreign[len(foreign)-1].ttl, several(slices.Compact(of)))
	}
	if bare > 0 {
		detail += fmt.Sprintf("; %d without keys", bare)
	}
	if len(foreign) == 0 && bare <= few {
		e.well("leases", "%s", detail)
		return
	}
	if unknown > asked {
		detail += "; " + others
	}
	e.Add(Note, "leases", "see whether their number grows: programs that do not revoke leases fill etcd's memory",
		"%s", detail).run(e.etcdctl("lease list"))
}

// beginning returns the first part of a key, by which people know whose it is.
func beginning(key string) string {
	if end := strings.Index(key[min(1, len(key)):], "/"); end >= 0 {
		return key[:end+2]
	}
	return key
}

// filled is what the keys with one beginning take.
type filled struct {
	prefix string
	keys   int64
	bytes  int64 // an estimate, from the first keys
}

// prefixes finds whose keys fill etcd: those of the first beginnings, in the order of the keys.
// etcd counts keys in memory, but all of them for each request.
func (e *Examination) prefixes(ctx context.Context) {
	const mostPrefixes, mostKeys, sample = 20, 2_000_000, 10
	var all []filled
	rest := int64(0)
	for from := "\x00"; ; {
		next, err := e.etcd().Get(ctx, from, clientv3.WithFromKey(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if e.failed(Note, "prefixes", "cannot be counted", err) {
			return
		}
		if rest = next.Count; rest == 0 || rest > mostKeys || len(all) == mostPrefixes {
			break
		}
		prefix := beginning(string(next.Kvs[0].Key))
		first, err := e.etcd().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(sample))
		if e.failed(Note, "prefixes", "cannot be counted", err) {
			return
		}
		of := filled{prefix: prefix, keys: first.Count}
		for _, kv := range first.Kvs {
			of.bytes += int64(len(kv.Key) + len(kv.Value))
		}
		of.bytes = of.bytes * of.keys / max(int64(len(first.Kvs)), 1)
		all, from = append(all, of), clientv3.GetPrefixRangeEnd(prefix)
	}
	e.judgePrefixes(all, rest)
}

// judgePrefixes names those that take most. rest is how many keys were not counted.
func (e *Examination) judgePrefixes(all []filled, rest int64) {
	slices.SortStableFunc(all, func(a, b filled) int { return int(b.bytes - a.bytes) })
	var texts []string
	for _, f := range all {
		texts = append(texts, fmt.Sprintf("%s %s, about %d MiB",
			explain.Quoted(f.prefix), errtext.Count(f.keys, "key", "keys"), f.bytes/mib))
	}
	if rest > 0 {
		texts = append(texts[:min(len(texts), 3)], errtext.Count(rest, "key", "keys")+" not counted")
	}
	if len(texts) == 0 {
		texts = []string{"no keys"}
	}
	e.well("prefixes", "%s, without earlier revisions", several(texts))
}
