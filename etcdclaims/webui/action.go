package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/sched"
	"go.uber.org/zap"
)

const (
	// actionTimeout bounds an operation. It continues if the browser leaves.
	actionTimeout = 15 * time.Second
	// mostFormBytes is the longest form: a key, a reason, and the fields beside them.
	mostFormBytes = 16 << 10
	// mostSkew is how far the clock of a worker may be ahead: the newest dead letter then
	// died in the future.
	mostSkew = time.Minute
	// mostReasonBytes leaves room for the name of the person in a forced release.
	mostReasonBytes = 500
)

// done is the message of the page after an action.
var done = map[Action]string{
	actionRelease:     "The term was ended.",
	actionRetryWork:   "The work can be begun again.",
	actionForgetWork:  "The record of the work was deleted.",
	actionPauseJob:    "The job is paused.",
	actionResumeJob:   "The job is not paused any more.",
	actionRunJob:      "A run was requested.",
	actionCancelJob:   "The runs of the job were cancelled.",
	actionPauseQueue:  "The queue is paused.",
	actionResumeQueue: "The queue is not paused any more.",
	actionRedrive:     "The item waits again.",
	actionRedriveAll:  "The dead letters wait again.",
	actionPurge:       "The dead letters were deleted.",
	actionCancelItem:  "The item was removed.",
	actionCancelTaken: "The item was removed.",
	actionEvict:       "The member was evicted.",
	actionReadmit:     "The name may join again.",
	actionTrial:       "The trial has ended.",
}

// act carries out the form that was sent.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if err := h.origins.Check(r); err != nil {
		h.log.Warn("operation denied",
			zap.String("user", h.cfg.User(r)), zap.String("remote", r.RemoteAddr), zap.Error(err))
		h.fail(w, http.StatusForbidden, err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostFormBytes)
	op, err := operation(r)
	if err != nil {
		h.fail(w, http.StatusBadRequest, err)
		return
	}
	who := []zap.Field{zap.String("user", h.cfg.User(r)), zap.String("remote", r.RemoteAddr)}
	log := h.log.With(append(who, op.fields()...)...)
	if h.claims.Passthrough() {
		err = etcdclaims.ErrPassthrough
	} else {
		err = h.cfg.Access(r, op)
	}
	if err != nil {
		log.Warn("operation denied", zap.Error(err))
		h.fail(w, http.StatusForbidden, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
	defer cancel()
	err = h.carryOut(admin.As(ctx, h.cfg.User(r), op.Reason), op, h.cfg.User(r))
	h.snapshots.invalidateAll()
	if err != nil {
		log.Warn("operation failed", zap.Error(err))
		h.fail(w, statusOf(err), err)
		return
	}
	log.Info("operation carried out")
	w.Header().Set("Location", string(op.back())) // http.Redirect would resolve it without a stripped prefix
	w.WriteHeader(http.StatusSeeOther)
}

// operation reads the form.
func operation(r *http.Request) (Operation, error) {
	if err := r.ParseForm(); err != nil {
		return Operation{}, err
	}
	form := r.PostForm
	op := Operation{
		Action: Action(form.Get("action")),
		Reason: strings.TrimSpace(strings.ToValidUTF8(form.Get("reason"), "\uFFFD")),
	}
	if !op.readObject(form) {
		return op, fmt.Errorf("there is no action %q", cut(string(op.Action), 40))
	}
	if len(op.Reason) > mostReasonBytes {
		return op, fmt.Errorf("the reason has %d bytes, the limit is %d", len(op.Reason), mostReasonBytes)
	}
	switch op.Action {
	case actionForgetWork:
		op.State = work.State(form.Get("state"))
		return op, nil
	case actionPurge:
		before, err := time.Parse(time.RFC3339Nano, form.Get("before"))
		if err != nil || before.After(time.Now().Add(mostSkew)) {
			return op, fmt.Errorf("%q is not a time in the past", cut(form.Get("before"), 40))
		}
		op.Before = before
		return op, nil
	case actionEvict:
		err := op.readEviction(form.Get("for"))
		return op, err
	case actionPauseJob, actionPauseQueue:
		err := op.readPause(strings.TrimSpace(form.Get("for")))
		return op, err
	case actionCancelItem:
		err := op.readPlace(form)
		return op, err
	case actionCancelTaken:
		err := op.readFence(form.Get("fence"), "worker")
		return op, err
	case actionRelease:
		err := op.readFence(form.Get("fence"), "holder")
		return op, err
	}
	return op, nil
}

// readFence reads the fence of what the operation ends. The operation needs a reason, which its holder sees.
func (op *Operation) readFence(text, whose string) error {
	fence, err := strconv.ParseInt(text, 10, 64)
	if err != nil || fence <= 0 {
		return fmt.Errorf("%q is not a fence", cut(text, 40))
	}
	op.Fence = fence
	if op.Reason == "" {
		return fmt.Errorf("give a reason: the %s and the history show it", whose)
	}
	return nil
}

// readPlace reads where the person saw an item that no worker had, and how many attempts it had begun.
func (op *Operation) readPlace(form url.Values) error {
	op.Where = queue.Where(form.Get("where"))
	if cancelOf("", queue.Info{Where: op.Where}).Action != actionCancelItem {
		return fmt.Errorf("%q is not a place of an item that no worker has", cut(string(op.Where), 40))
	}
	attempts, err := strconv.Atoi(form.Get("attempts"))
	if err != nil || attempts < 0 {
		return fmt.Errorf("%q is not a number of attempts", cut(form.Get("attempts"), 40))
	}
	op.Attempts = attempts
	return nil
}

// readPause reads for how long something is paused: until it is resumed if nothing is given.
func (op *Operation) readPause(length string) error {
	if length == "" {
		return nil
	}
	d, err := time.ParseDuration(length)
	if err != nil || pausing.For(d).Check() != nil {
		return fmt.Errorf("%q is not a time such as 2h or 30m, of at most %v", cut(length, 40), pausing.Most)
	}
	op.For = d
	return nil
}

// readObject reads what the action is carried out on, and nothing else: Access must not decide by a
// field without effect. It returns false if there is no such action.
func (op *Operation) readObject(form url.Values) bool {
	switch op.Action {
	case actionRelease, actionRetryWork, actionForgetWork:
		op.Key = form.Get("key")
	case actionPauseJob, actionResumeJob, actionRunJob, actionCancelJob:
		op.Group, op.Job = form.Get("group"), form.Get("job")
	case actionPauseQueue, actionResumeQueue, actionRedriveAll, actionPurge:
		op.Queue = form.Get("queue")
	case actionRedrive, actionCancelItem, actionCancelTaken:
		op.Queue, op.Item = form.Get("queue"), form.Get("item")
	case actionEvict, actionReadmit:
		op.Group, op.Member = form.Get("group"), form.Get("member")
	case actionTrial:
	default:
		return false
	}
	return true
}

// back is the page that shows the result.
func (op Operation) back() template.URL {
	switch {
	case op.Action == actionTrial:
		return query("health", "done", op.Action)
	case op.Member != "":
		return query("group", "group", op.Group, "done", op.Action)
	case op.Key != "":
		return query("key", "key", op.Key, "done", op.Action)
	case op.Job != "":
		return query("job", "group", op.Group, "job", op.Job, "done", op.Action)
	case op.Item != "":
		return query("item", "queue", op.Queue, "id", op.Item, "done", op.Action)
	}
	return query("queue", "queue", op.Queue, "done", op.Action)
}

// carryOut does what a person is allowed to do.
func (h *Handler) carryOut(ctx context.Context, op Operation, user string) error {
	why := cut(strings.ToValidUTF8(user, "\uFFFD"), 200)
	if op.Reason != "" {
		why += ": " + op.Reason
	}
	switch op.Action {
	case actionRelease:
		return admin.ForceReleaseTerm(ctx, h.claims, fencing.Token{Key: op.Key, Fence: op.Fence}, why)
	case actionRetryWork:
		return h.retry(ctx, op)
	case actionForgetWork:
		return h.works.Forget(ctx, op.Key, op.State)
	case actionTrial:
		return h.try(ctx, user)
	case actionEvict, actionReadmit:
		return h.changeGroup(ctx, op, why)
	case actionPauseJob, actionResumeJob, actionRunJob, actionCancelJob:
		return h.changeJob(ctx, op, why)
	case actionPauseQueue, actionResumeQueue, actionRedrive, actionRedriveAll, actionPurge,
		actionCancelItem, actionCancelTaken:
		return h.changeQueue(ctx, op, why)
	}
	return fmt.Errorf("nothing carries out %q", op.Action)
}

// retry lets work be begun again. A person must give a reason if that is risky.
func (h *Handler) retry(ctx context.Context, op Operation) error {
	if op.Reason == "" {
		record, ok, err := h.works.Record(ctx, op.Key)
		if err != nil {
			return err
		}
		if ok && explain.IsRisky(record) {
			return errInput{"the work is at most once: give a reason why its effect did not happen"}
		}
	}
	_, err := h.works.Retry(ctx, op.Key)
	return err
}

func (h *Handler) changeJob(ctx context.Context, op Operation, why string) error {
	s, err := h.groups.scheduler(op.Group)
	if err != nil {
		return err
	}
	switch op.Action {
	case actionPauseJob:
		if op.For != 0 {
			return s.Pause(ctx, op.Job, why, sched.For(op.For))
		}
		return s.Pause(ctx, op.Job, why)
	case actionResumeJob:
		return s.Resume(ctx, op.Job)
	case actionRunJob:
		_, err := s.RunNow(ctx, op.Job)
		return err
	}
	return s.Cancel(ctx, op.Job, why)
}

func (h *Handler) changeQueue(ctx context.Context, op Operation, why string) error {
	q, err := h.queues.open(ctx, op.Queue)
	if err != nil {
		return err
	}
	switch op.Action {
	case actionPauseQueue:
		if op.For != 0 {
			return q.Pause(ctx, why, queue.For(op.For))
		}
		return q.Pause(ctx, why)
	case actionResumeQueue:
		return q.Resume(ctx)
	case actionRedrive:
		return q.Redrive(ctx, op.Item)
	case actionRedriveAll:
		_, err := q.RedriveAll(ctx)
		return err
	case actionCancelItem, actionCancelTaken:
		return cancelItem(ctx, q, op)
	}
	_, err = q.Purge(ctx, op.Before)
	return err
}

// errChanged is the error of an operation on an item that is not any more as the person saw it.
var errChanged = errors.New("nothing was done")

// cancelItem removes an item that is as the person saw it. Cancel has no such condition, so the item is
// looked up right before. In between a worker can take the item, give it back or bury it: then an item is
// cancelled that is not quite as it was shown. cancel-item still removes no item that a worker has.
func cancelItem(ctx context.Context, q *queue.Queue, op Operation) error {
	i, err := q.Look(ctx, op.Item)
	if err != nil {
		return err
	}
	now := cancelOf(op.Queue, i)
	now.Reason = op.Reason
	if now != op {
		return fmt.Errorf("cancel item %q of queue %q: %w: it was %s when it was shown, and is %s now; look at it again",
			op.Item, op.Queue, errChanged, op.seen(), cmp.Or(now.seen(), string(i.Where)))
	}
	if op.Action == actionCancelTaken {
		return q.Cancel(ctx, op.Item, queue.AlsoTaken(op.Reason)) // the worker learns who did it, too
	}
	return q.Cancel(ctx, op.Item)
}

// seen describes the item that is to be cancelled.
func (op Operation) seen() string {
	switch {
	case op.Fence != 0:
		return fmt.Sprintf("taken with fence %d", op.Fence)
	case op.Where != "":
		return fmt.Sprintf("%s after %s", op.Where, count(op.Attempts, "attempt", "attempts"))
	}
	return ""
}

// statusOf is the HTTP status of an operation that has failed.
func statusOf(err error) int {
	for _, known := range []error{
		etcdclaims.ErrHeld, etcdclaims.ErrRefused, work.ErrDone, etcdclaims.ErrSlots, sched.ErrUnchanged,
		queue.ErrUnchanged, queue.ErrTaken, errTrying, errTried, errChanged,
	} {
		if errors.Is(err, known) {
			return http.StatusConflict
		}
	}
	for _, known := range []error{work.ErrNoRecord, sched.ErrUnknownJob, queue.ErrNotFound, group.ErrNoGroup} {
		if errors.Is(err, known) {
			return http.StatusNotFound
		}
	}
	var input errInput
	if errors.As(err, &input) || errors.Is(err, etcdclaims.ErrInvalidKey) {
		return http.StatusBadRequest
	}
	return http.StatusBadGateway
}
