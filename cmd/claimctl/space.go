package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const spaceText = `Show how full each member of etcd is.

space reclaim frees a full etcd, in the order that works. It compacts all but the
last --keep revisions. Then it defragments one member after the other, the leader
last. It disarms the alarm NOSPACE if there is room. etcdctl has the same steps as
compaction, defrag and alarm disarm.

etcd before 3.6 does not report its quota. Then the share is not shown, and the alarm
is disarmed in any case. etcd raises it again if there is no room.

A member answers no request while it is defragmented, about a second for 100 MiB.
The command waits until the member has a leader again before it continues with the
next. It does nothing unless all voting members answer, or --allow-missing is given.
One alarm stops the writes to all members. The alarm of a member that is not among the
--endpoints, or that does not answer there, has a line of its own. It is disarmed if
that member has room or has left the cluster.
Watches and reads of compacted revisions fail, and claimctl history loses the terms
before them. With authentication the command needs the role root.`

// spaceView is the database of one member.
type spaceView struct {
	Endpoint string `json:"endpoint"`
	Size     int64  `json:"size"`
	InUse    int64  `json:"inUse"`
	Quota    int64  `json:"quota,omitempty"` // 0 if it is not known
	Leader   bool   `json:"leader"`
	Alarm    bool   `json:"alarm"`
	Unseen   bool   `json:"unseen,omitempty"` // only its alarm is known: it is not among the endpoints that answer

	// What reclaim did. Compacted is the revision up to which it compacted the cluster.
	Compacted    int64  `json:"compacted,omitempty,string"`
	Defragmented string `json:"defragmented,omitempty"` // how long it took
	Disarmed     bool   `json:"disarmed,omitempty"`

	revision int64
	member   uint64
	led      bool // it knows a leader
}

func (v spaceView) name() string { return v.Endpoint }

var spaceHeader = []string{"ENDPOINT", "SIZE", "IN USE", "QUOTA", "FULL", "LEADER", "ALARM"}

func (v spaceView) cells() []string {
	mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
	yes := map[bool]string{true: "yes"}
	alarm := map[bool]string{true: "NOSPACE"}
	if v.Unseen {
		return []string{v.Endpoint, "", "", "", "", "", alarm[v.Alarm]}
	}
	quota, share := "", ""
	if v.Quota > 0 {
		quota, share = mib(v.Quota), fmt.Sprintf("%d%%", v.Size*100/v.Quota)
	}
	return []string{v.Endpoint, mib(v.Size), mib(v.InUse), quota, share, yes[v.Leader], alarm[v.Alarm]}
}

// full reports whether the database leaves no room to disarm the alarm for. Where the
// quota is not known it reports false: etcd raises the alarm again.
func (v spaceView) full() bool { return v.Quota > 0 && v.Size > v.Quota*9/10 }

func (a *app) spaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "space", GroupID: groupRepair, Args: cobra.NoArgs, Short: "Show how full etcd is, and free it", Long: spaceText,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.atEtcd(cmd, func(ctx context.Context, etcd *clientv3.Client) error {
				views, err := a.spaces(ctx, etcd)
				if err != nil {
					return err
				}
				return printList(a, spaceHeader, sequence(views))
			})
		},
	}
	var yes, missing bool
	var keep int64
	var timeout time.Duration
	reclaim := &cobra.Command{
		Use: "reclaim --yes", Args: cobra.NoArgs, Short: "Compact, defragment, and disarm NOSPACE", Long: spaceText,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usageError("space reclaim: old revisions are lost, and each member stands still for a while; repeat with --yes")
			}
			if keep < 0 {
				return usageError("space reclaim: --keep %d is negative", keep)
			}
			return a.atEtcd(cmd, func(first context.Context, etcd *clientv3.Client) error {
				before, err := a.spaces(first, etcd)
				if err != nil {
					return err
				}
				done := reclaimed{defragmented: map[string]time.Duration{}, disarmed: map[string]bool{}}
				after, err := a.reclaim(cmd.Context(), etcd, before, &done, keep, timeout, missing)
				if err != nil && after == nil {
					if a.format == formatTable || done.nothing() {
						return err // a table's steps were printed
					}
					after = before
				}
				return errors.Join(printList(a, spaceHeader, sequence(done.marked(after))), err)
			})
		},
	}
	reclaim.Flags().BoolVar(&yes, "yes", false, "give up old revisions")
	reclaim.Flags().BoolVar(&missing, "allow-missing", false, "go on while voting members do not answer: the cluster may stand still for a while")
	reclaim.Flags().Int64Var(&keep, "keep", 1000, "how many of the last revisions stay")
	reclaim.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long one member may take")
	cmd.AddCommand(reclaim)
	return cmd
}

// atEtcd calls f with an etcd client and the time that a command may take.
func (a *app) atEtcd(cmd *cobra.Command, f func(ctx context.Context, etcd *clientv3.Client) error) error {
	etcd, err := a.dial()
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // what matters was answered
	ctx, cancel := context.WithTimeout(cmd.Context(), a.commandTimeout)
	defer cancel()
	return f(ctx, etcd)
}

// spaces asks each endpoint for its space. The leader is the last.
func (a *app) spaces(ctx context.Context, etcd *clientv3.Client) ([]spaceView, error) {
	alarms, err := etcd.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the alarms at %s: %w", strings.Join(etcd.Endpoints(), ", "), err)
	}
	var views []spaceView
	var first error // of a member that is left out
	for _, endpoint := range etcd.Endpoints() {
		s, err := doctor.StatusOf(ctx, etcd, endpoint, a.dialTimeout)
		if err != nil {
			first = cmp.Or(first, fmt.Errorf("status of %s: %w", endpoint, err))
			continue
		}
		v := spaceView{
			Endpoint: endpoint, Size: s.DbSize, InUse: s.DbSizeInUse, Quota: max(s.DbSizeQuota, 0), Leader: s.Leader == s.Header.MemberId,
			revision: s.Header.Revision, member: s.Header.MemberId, led: s.Leader != 0,
		}
		views = append(views, v)
	}
	if len(views) == 0 {
		return nil, first
	} else if first != nil {
		a.complain("left out: "+first.Error(), 0)
	}
	if i := slices.IndexFunc(views, func(v spaceView) bool { return v.Leader }); i >= 0 {
		leader := views[i]
		views = append(slices.Delete(views, i, i+1), leader)
	}
	return alarmed(views, alarms.Alarms), nil
}

// alarmed returns the views with the alarms, and with those of members that are not among them.
func alarmed(views []spaceView, alarms []*pb.AlarmMember) []spaceView {
	for _, m := range alarms {
		if m.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		seen := false
		for i := range views {
			if views[i].member == m.MemberID { // two endpoints can be of one member
				views[i].Alarm, seen = true, true
			}
		}
		if !seen {
			views = append(views, spaceView{Endpoint: fmt.Sprintf("member %x", m.MemberID), Alarm: true, Unseen: true, member: m.MemberID})
		}
	}
	return views
}

// votersAnswer returns an error if a voting member does not answer or has no leader:
// the cluster could lose its majority while another is defragmented.
func (a *app) votersAnswer(ctx context.Context, etcd *clientv3.Client, views []spaceView) error {
	members, err := etcd.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list the members: %w", err)
	}
	for _, m := range members.Members {
		if m.IsLearner || slices.ContainsFunc(views, func(v spaceView) bool { return v.member == m.ID && v.led }) {
			continue
		}
		answers := slices.ContainsFunc(m.ClientURLs, func(url string) bool {
			s, err := doctor.StatusOf(ctx, etcd, url, a.dialTimeout)
			return err == nil && s.Header.MemberId == m.ID && s.Leader != 0
		})
		if !answers {
			return fmt.Errorf("space reclaim: member %x %q does not answer or has no leader: bring it back, name it in --endpoints, or repeat with --allow-missing", m.ID, m.Name)
		}
	}
	return nil
}

// awaitLeader waits until a member answers and has a leader.
func (a *app) awaitLeader(ctx context.Context, etcd *clientv3.Client, endpoint string) error {
	for {
		s, err := doctor.StatusOf(ctx, etcd, endpoint, a.dialTimeout)
		if err == nil && s.Leader != 0 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("space reclaim: %s has no leader after its defragmentation: %w", endpoint, errors.Join(ctx.Err(), err))
		}
	}
}

// reclaimed is what was done, step by step.
type reclaimed struct {
	compacted    int64 // revision, 0 if nothing was
	defragmented map[string]time.Duration
	disarmed     map[string]bool
}

func (r *reclaimed) nothing() bool { return r.compacted == 0 && len(r.defragmented) == 0 }

// marked returns the views with what was done.
func (r *reclaimed) marked(views []spaceView) []spaceView {
	views = slices.Clone(views)
	for i := range views {
		v := &views[i]
		v.Compacted, v.Disarmed = r.compacted, r.disarmed[v.Endpoint]
		if took, is := r.defragmented[v.Endpoint]; is {
			v.Defragmented = doctor.Round(took).String()
		}
	}
	return views
}

// reclaim returns the members as they are afterwards; also, with an error, if one is still full.
func (a *app) reclaim(ctx context.Context, etcd *clientv3.Client, before []spaceView, done *reclaimed, keep int64, timeout time.Duration, missing bool) ([]spaceView, error) {
	bounded := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return f(ctx)
	}
	spaces := func() (views []spaceView, err error) {
		err = bounded(func(ctx context.Context) error { views, err = a.spaces(ctx, etcd); return err })
		return views, err
	}
	if !missing {
		if err := bounded(func(ctx context.Context) error { return a.votersAnswer(ctx, etcd, before) }); err != nil {
			return nil, err
		}
	}
	if to := before[0].revision - keep; to > 0 {
		err := bounded(func(ctx context.Context) error {
			_, err := etcd.Compact(ctx, to, clientv3.WithCompactPhysical())
			return err
		})
		switch {
		case err == nil:
			done.compacted = to
			a.say("compacted up to revision %d of %d", to, before[0].revision)
		case errors.Is(err, rpctypes.ErrCompacted):
			a.say("revision %d of %d was compacted before", to, before[0].revision)
		default:
			return nil, fmt.Errorf("compact: %w", err)
		}
	} else {
		a.say("compacted nothing: all %d revisions are among the last %d (--keep %[2]d); --keep 0 frees them", before[0].revision, keep)
	}
	for _, v := range before {
		if v.Unseen {
			continue
		}
		begun := time.Now()
		if err := bounded(func(ctx context.Context) error { _, err := etcd.Defragment(ctx, v.Endpoint); return err }); err != nil {
			return nil, fmt.Errorf("defragment %s: %w", v.Endpoint, err)
		}
		done.defragmented[v.Endpoint] = time.Since(begun)
		a.say("defragmented %s in %s", v.Endpoint, doctor.Round(done.defragmented[v.Endpoint]))
		if err := bounded(func(ctx context.Context) error { return a.awaitLeader(ctx, etcd, v.Endpoint) }); err != nil {
			return nil, err
		}
	}
	after, err := spaces()
	if err != nil {
		return nil, err
	}
	for _, v := range after {
		if v.full() {
			return after, fmt.Errorf("%s is still full: delete what fills it, or raise --quota-backend-bytes of all members, and repeat", v.Endpoint)
		}
	}
	for _, v := range after {
		if v.Alarm {
			if err := bounded(func(ctx context.Context) error { return a.disarm(ctx, etcd, v) }); err != nil {
				return after, err
			}
			done.disarmed[v.Endpoint] = true
			a.say("disarmed NOSPACE of %s", v.Endpoint)
		}
	}
	return spaces()
}

// disarm ends the alarm of a member. It returns an error if the member is unseen and may be full.
func (a *app) disarm(ctx context.Context, etcd *clientv3.Client, v spaceView) error {
	if v.Unseen {
		members, err := etcd.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("list the members: %w", err)
		}
		i := slices.IndexFunc(members.Members, func(m *pb.Member) bool { return m.ID == v.member })
		if i >= 0 && !slices.ContainsFunc(members.Members[i].ClientURLs, func(url string) bool {
			s, err := doctor.StatusOf(ctx, etcd, url, a.dialTimeout)
			return err == nil && s.Header.MemberId == v.member && !spaceView{Size: s.DbSize, Quota: max(s.DbSizeQuota, 0)}.full()
		}) {
			return fmt.Errorf("space reclaim: the alarm NOSPACE of %s stays, and stops all writes: it is full or does not answer: name it in --endpoints, and repeat", v.Endpoint)
		}
	}
	if _, err := etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: v.member, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		return fmt.Errorf("disarm NOSPACE of %s: %w", v.Endpoint, err)
	}
	return nil
}
