package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"go.uber.org/zap"
)

// Limits and defaults, as the comments of Config state them.
const (
	maxPartitions = 16_384
	maxWeight     = 1_000_000

	defaultCooldown     = 5 * time.Second
	defaultMoveInterval = 10 * time.Second

	maxAway     = 24 * time.Hour
	maxEviction = 365 * 24 * time.Hour
	maxLabel    = 1024 // bytes of Address and Zone
)

// Errors that calls return besides those of package etcdclaims. Test with errors.Is.
var (
	// ErrPartitions is returned by Join if the group has another number of partitions. Route and Call
	// return it if the group was made anew with another number since the view was opened.
	ErrPartitions = errors.New("group has another number of partitions")
	// ErrReplaced is returned by Member.Err if another process joined with the member's
	// name. The later process keeps the name.
	ErrReplaced = errors.New("another process joined with the name of this member")
	// ErrLeft is returned by Member.Err after Leave.
	ErrLeft = errors.New("member has left the group")
	// ErrNoGroup is returned by Open if no process has joined a group of this name.
	ErrNoGroup = errors.New("no such group")
	// ErrNoOwner is returned by Route if no member is known to own the partition.
	ErrNoOwner = errors.New("partition has no owner")
	// ErrInUse is returned by Remove if the group has members or owned partitions.
	ErrInUse = errors.New("group is in use")

	errJoined = errors.New("client is a member already: use a client for each member")
)

// EvictedError is returned by Join and Member.Err if the member was evicted.
type EvictedError struct {
	Member string
	Reason string
	By     string    // Owner of the client that evicted the member
	Until  time.Time // when the name may join again, by the evicting process's clock
}

func (e *EvictedError) Error() string {
	return fmt.Sprintf("member %q was evicted by %s until %s: %s", e.Member, e.By, e.Until.Format(time.RFC3339), e.Reason)
}

// Config describes a group and one member of it. Group and Partitions are required, and are
// the same for all members. So should be Cooldown, MaxMoves and MoveInterval.
type Config struct {
	// Group names the group under the prefix of the client: printable UTF-8 of 1 to
	// 128 bytes without slashes.
	Group string
	// Partitions is the number of partitions, from 1 to 16,384. The partitions are numbered from 0.
	Partitions int

	// Name is the name of the member. The rules are those of Group. A process that joins
	// with the name of a member replaces that member, and takes over its partitions. So a process
	// that keeps its name across restarts keeps its partitions, if it is back before its death is
	// noticed: within the TTL, or about half a second with Suspectable. Default: the client's
	// Instance, which is new with each client.
	Name string
	// Weight is the member's part of the partitions, in proportion to the weights of the
	// others, up to 1,000,000. Default: 1.
	Weight int
	// Address and Zone describe the member to callers of Route, up to 1,024 bytes each.
	// They do not affect the plan.
	Address, Zone string
	// Away is how long the partitions stay reserved for Name after Leave, or Client.Close, so that a restart
	// does not move them. They have no owner during that time, unless a process joins
	// with the name. The reserved partitions are those that the member owned when it left.
	// Their number is at most the number of partitions that the plan assigns to the name,
	// which changes when other members come or go. Away is rounded up to
	// full seconds, is at most 24 h, and requires Name. Zero means that the partitions go to
	// others at once.
	Away time.Duration

	// Cooldown is how long a member is in the list before partitions move to it from other
	// members. So a member that ends within its Cooldown has moved no partitions that others had for
	// longer. Two kinds of partitions do not wait for that: those without an owner, and those whose
	// first owner has had them for less than the Cooldown, because it was early. The latter wait until
	// the list has not changed for 1 s. Zero means 5 s. Negative means no cool-down.
	Cooldown time.Duration
	// MaxMoves is how many partitions may move between members within MoveInterval, in the
	// whole group. Partitions of members that leave, die or are evicted do not count, nor partitions
	// that a member gives back before it has called their handlers. It can be exceeded
	// while the list of members changes; see docs/groups.md. Zero means no limit.
	MaxMoves int
	// MoveInterval is the time in which at most MaxMoves partitions move. Default: 10 s.
	MoveInterval time.Duration

	// Suspectable has the partitions of a member whose client does not answer go to others in about a
	// second instead of the TTL. Each member asks the next one in the order of names, through etcd,
	// whether it lives, which costs etcd 40 writes a second for each member. A member that does not
	// answer for 450 ms, although etcd answers, is taken off the list, and the claims of its
	// partitions end with etcdclaims.ReasonDeleted. See etcdclaims.Suspectable for the times, and for
	// live processes that do not answer. Use the option only if all effects of the handlers are
	// fenced: Claim.Check of a suspected member can still succeed while the next owner already works.
	//
	// A member that was suspected wrongly joins again by itself, and gets partitions after its
	// Cooldown. If its claim is taken again within a minute, it first pauses for a TTL, and each
	// further time for twice as long, up to 16 TTL. A group is without owners while all its members
	// pause: do not use the option where all processes often stand still.
	//
	// Partitions can still wait for the TTL
	//
	//   - of a member that follows a dead one, and dies before the lease of the dead one has ended,
	//   - of a dead member, if the one that asks it leaves or dies before it has freed them,
	//   - of a member that dies while it is off the list since it cannot claim a partition,
	//   - that are handed to a member after its death, or kept for a handler that did not return.
	//
	// A death is also noticed while the member leaves, and after another process has taken its name.
	//
	// All members should have the same setting. A member without the option is never taken for dead,
	// and asks nobody: partitions of the member that follows it wait for the TTL, too.
	// docs/permissions.md has what etcd must permit. Default: false.
	Suspectable bool
	// Progress is how long a handler may take between two calls of etcdclaims.Claim.Beat. One that takes
	// longer hangs: its context ends, and a drain later its claim. The member is then taken off the
	// list, so that another one owns the partition a TTL later. It keeps the partitions whose
	// handlers call Beat. It joins again when all handlers that hang have returned, and not before a
	// TTL. Only fences stop what such a handler still writes. Zero means that no beats are expected.
	Progress time.Duration
	// TTL is the lease time of the partitions' claims and of the member's entry. Default: that
	// of the client.
	TTL time.Duration
	// Logger receives events that no caller would otherwise see. Default: the Logger of the
	// client.
	Logger *zap.Logger
	// Hooks are called on events of this member.
	Hooks Hooks
}

// Hooks are called on events of a member, on the goroutine of the partition. They must return
// quickly. A nil hook is skipped.
type Hooks struct {
	// Started is called before the handler of a partition is called for the first time under a
	// claim.
	Started func(partition int, t fencing.Token)
	// Stopped is called when the partition's claim has ended and its handler has returned. The
	// error is why the handler's context ended.
	Stopped func(partition int, t fencing.Token, cause error)
}

func (cfg Config) withDefaults(claims *etcdclaims.Client) (Config, error) {
	if cfg.Name == "" && cfg.Away != 0 {
		return cfg, fmt.Errorf("group %q: config: Away %v needs a Name to come back with", cfg.Group, cfg.Away)
	}
	if cfg.Name == "" {
		cfg.Name = claims.Instance()
	}
	if cfg.Weight == 0 {
		cfg.Weight = 1
	}
	if cfg.Cooldown == 0 {
		cfg.Cooldown = defaultCooldown
	}
	if cfg.MoveInterval == 0 {
		cfg.MoveInterval = defaultMoveInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	if err := claimerr.CheckName("group", cfg.Group); err != nil {
		return cfg, err
	}
	if err := claimerr.CheckName("member", cfg.Name); err != nil {
		return cfg, err
	}
	var fault string
	switch {
	case cfg.Partitions < 1 || cfg.Partitions > maxPartitions:
		fault = fmt.Sprintf("Partitions %d is not between 1 and %d", cfg.Partitions, maxPartitions)
	case cfg.Weight < 0 || cfg.Weight > maxWeight:
		fault = fmt.Sprintf("Weight %d is not between 1 and %d", cfg.Weight, maxWeight)
	case len(cfg.Address) > maxLabel || len(cfg.Zone) > maxLabel:
		fault = fmt.Sprintf("Address or Zone is longer than %d bytes", maxLabel)
	case cfg.Away < 0 || cfg.Away > maxAway:
		fault = fmt.Sprintf("Away %v is not between 0 and %v", cfg.Away, maxAway)
	case cfg.MaxMoves < 0 || cfg.MaxMoves > maxPartitions:
		fault = fmt.Sprintf("MaxMoves %d is not between 0 and %d", cfg.MaxMoves, maxPartitions)
	case cfg.MoveInterval < 0:
		fault = fmt.Sprintf("MoveInterval %v is negative", cfg.MoveInterval)
	case cfg.Progress < 0:
		fault = fmt.Sprintf("Progress %v is negative", cfg.Progress)
	case cfg.TTL < 0:
		fault = fmt.Sprintf("TTL %v is negative", cfg.TTL)
	}
	if fault != "" {
		return cfg, fmt.Errorf("group %q: config: %s", cfg.Group, fault)
	}
	return cfg, nil
}

// needsEtcd returns why a client cannot be used for a group, or nil.
func needsEtcd(claims *etcdclaims.Client, group string) error {
	if err := passthrough.Refuse(claims); err != nil {
		return errtext.Wrap(fmt.Sprintf("group %.80q", group), err)
	}
	return nil
}
