package webui

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

const defaultMaxTabs = 200

// ErrReadOnly is why nothing can be changed if Config.Access is nil.
var ErrReadOnly = errors.New("this page is read-only")

// Config configures a Handler. Every field is optional.
type Config struct {
	// Title names what the page shows, such as "production". It is part of the
	// heading. Default: none.
	Title string
	// Access decides whether the request may carry out the operation. A nil error
	// permits it. The text of any other error is shown to the person, so it must
	// not have secrets. Access is called for each page with ActionView, for each
	// form before it is shown, and for each form that was sent. It must be quick.
	//
	// Default: everybody may view, and ErrReadOnly for all else.
	Access func(r *http.Request, op Operation) error
	// User returns the name of the person who sent the request, for the log and for the
	// records of operations. Default: the remote address.
	User func(r *http.Request) string
	// Redact returns the text to show instead of a value that your programs have
	// stored. Default: payloads and results are replaced by their length, notes and
	// errors are shown.
	Redact func(f Field, value string) string
	// Schedulers are schedulers of this process. The page knows the schedules of
	// their jobs also if they are not cron expressions or intervals. The other groups
	// under the client's prefix are found in etcd.
	Schedulers []*sched.Scheduler
	// ICal parses the iCalendar texts of jobs that are defined in etcd, as sched.Config.ICal
	// does: pass ical.ParseText of package sched/ical. Default: the page does not know when
	// jobs with such texts are due.
	ICal func(text, zone string) (calendar.Calendar, error)
	// Refusals has the tokens that gates of this process have refused. Default: the
	// page does not show refusals.
	Refusals *Refusals
	// TLS is how the process connects to etcd. The page shows when its certificates expire.
	// Default: it does not.
	TLS *tls.Config
	// TrustedOrigins are other origins, such as "https://ops.example.com", whose pages
	// may send forms to the handler. It needs them only behind a proxy that changes
	// the Host header.
	TrustedOrigins []string
	// MaxTabs is how many tabs are kept up to date at the same time. Further ones
	// work, but must be reloaded. Default: 200.
	MaxTabs int
	// Logger receives one line for each operation that was carried out, has failed or
	// was denied, other than views: who, what, and the outcome. Default: the Logger of the
	// client.
	Logger *zap.Logger
}

func (cfg Config) withDefaults() (Config, *http.CrossOriginProtection, error) {
	if cfg.Access == nil {
		cfg.Access = func(_ *http.Request, op Operation) error {
			if op.Action == ActionView {
				return nil
			}
			return ErrReadOnly
		}
	}
	if cfg.User == nil {
		cfg.User = func(r *http.Request) string { return r.RemoteAddr }
	}
	if cfg.Redact == nil {
		cfg.Redact = redact
	}
	cfg.MaxTabs = cmp.Or(cfg.MaxTabs, defaultMaxTabs)
	if cfg.MaxTabs < 0 {
		return cfg, nil, fmt.Errorf("webui: config: MaxTabs %d must not be negative", cfg.MaxTabs)
	}
	origins := http.NewCrossOriginProtection()
	for _, origin := range cfg.TrustedOrigins {
		if err := origins.AddTrustedOrigin(origin); err != nil {
			return cfg, nil, fmt.Errorf("webui: config: TrustedOrigins: %w", err)
		}
	}
	return cfg, origins, nil
}

// Field is the kind of a value that your programs have stored.
type Field string

// The kinds of values that Config.Redact is called for.
const (
	FieldNote    Field = "note"    // of a claim or of work
	FieldError   Field = "error"   // of work, a run or an item, with its stack
	FieldResult  Field = "result"  // of work, or of an item that was completed
	FieldPayload Field = "payload" // of an item
)

// redact hides what may be data of customers.
func redact(f Field, value string) string {
	if f == FieldNote || f == FieldError {
		return value
	}
	return fmt.Sprintf("(hidden, %d bytes)", len(value))
}

// Action is what a person wants to do. ActionView only looks. The others change something,
// as the named methods do:
//
//	release                      admin.ForceReleaseTerm
//	retry-work, forget-work      work.Runner.Retry and Forget
//	pause-job, resume-job        sched.Scheduler.Pause and Resume
//	run-job, cancel-job          sched.Scheduler.RunNow and Cancel
//	pause-queue, resume-queue    queue.Queue.Pause and Resume
//	redrive, redrive-all, purge  queue.Queue.Redrive, RedriveAll and Purge
//	cancel-item, cancel-taken    queue.Queue.Cancel, and the same with queue.AlsoTaken
//	evict-member, readmit-member group.View.Evict and Readmit
//	trial                        a claim and writes of the page's own, to examine etcd
//
// Later versions can have further actions: permit those that you name, and no others. The
// handler refuses an action that it does not know before it calls Config.Access.
type Action string

// ActionView is the action of each page. It changes nothing.
const ActionView Action = "view"

const (
	actionRelease     Action = "release"
	actionRetryWork   Action = "retry-work"
	actionForgetWork  Action = "forget-work"
	actionPauseJob    Action = "pause-job"
	actionResumeJob   Action = "resume-job"
	actionRunJob      Action = "run-job"
	actionCancelJob   Action = "cancel-job"
	actionPauseQueue  Action = "pause-queue"
	actionResumeQueue Action = "resume-queue"
	actionRedrive     Action = "redrive"
	actionRedriveAll  Action = "redrive-all"
	actionPurge       Action = "purge"
	actionCancelItem  Action = "cancel-item"
	actionCancelTaken Action = "cancel-taken"
	actionEvict       Action = "evict-member"
	actionReadmit     Action = "readmit-member"
	actionTrial       Action = "trial"
)

// Operation is an action and what it is about.
type Operation struct {
	Action Action
	// Page is the name of the page that is viewed, such as "claims". It is empty for
	// all other actions.
	Page string
	// Key is the key of the claim or the work.
	Key string
	// Fence is the fence of the term to be released, or of the delivery to be cancelled. Another
	// term is not released, and another delivery not cancelled.
	Fence int64
	// State is the state of the work to be forgotten, as the person saw it. Work in
	// another state is not forgotten.
	State work.State
	// Group and Job name the job. Group and Member name the member of a group.
	Group, Job, Member string
	// For is how long a member is evicted, or a job or a queue paused; zero for a pause until it is resumed.
	For time.Duration
	// Queue names the queue, and Item the id of an item in it.
	Queue, Item string
	// Where and Attempts are the place and the begun attempts of the item to be cancelled by
	// "cancel-item", as the person saw them. Zero for all other actions. The item is not
	// cancelled if they differ.
	Where    queue.Where
	Attempts int
	// Before is just after the newest death in the list that the person saw. Dead
	// letters that died later are not purged.
	Before time.Time
	// Reason is why the person does it. It is empty before a form is sent.
	Reason string
}

// fields are those of the log.
func (op Operation) fields() []zap.Field {
	fields := []zap.Field{zap.String("action", string(op.Action))}
	for _, f := range []struct{ name, value string }{
		{"key", op.Key},
		{"state", string(op.State)},
		{"group", op.Group},
		{"job", op.Job},
		{"member", op.Member},
		{"queue", op.Queue},
		{"item", op.Item},
		{"where", string(op.Where)},
		{"reason", op.Reason},
	} {
		if f.value != "" {
			fields = append(fields, zap.String(f.name, f.value))
		}
	}
	if op.Where != "" {
		fields = append(fields, zap.Int("attempts", op.Attempts))
	}
	if op.Fence != 0 {
		fields = append(fields, zap.Int64("fence", op.Fence))
	}
	if op.For != 0 {
		fields = append(fields, zap.Duration("for", op.For))
	}
	if !op.Before.IsZero() {
		fields = append(fields, zap.Time("before", op.Before))
	}
	return fields
}

// errInput is the error of a request that does not make sense.
type errInput struct{ text string }

func (e errInput) Error() string { return e.text }
