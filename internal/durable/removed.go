package durable

import (
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
)

// removedBy returns the keys below the prefix that an operator's action removed, of those that a backup has or that are
// names. What it did to dead letters is not among them: programs do that, too, and have no records.
func removedBy(r audit.Record) []string {
	k := tick.NewKeys("", r.Group)
	switch r.Verb {
	case audit.ResumeQueue.Name:
		return []string{item.NewKeys("", item.Spec{Name: r.Queue}).Paused()}
	case audit.ResumeJob.Name:
		return []string{k.Paused(r.Job)}
	case audit.UndefineJob.Name:
		return []string{k.Definition(r.Job), k.Paused(r.Job)}
	case audit.ForgetJob.Name:
		return []string{k.Spec(r.Job), k.Definition(r.Job), k.Paused(r.Job)}
	case audit.RemoveGroup.Name:
		return []string{groupSpec("group/" + keyspace.Digest(r.Group) + "/")}
	}
	return nil
}

// groupSpec is the key of the number of partitions of the group whose keys have the root.
func groupSpec(root string) string { return root + "spec" }
