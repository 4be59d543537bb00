package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/doctor"
)

// itemView is an item of a queue.
type itemView struct {
	ID       string          `json:"id"`
	Where    string          `json:"where"`
	Topic    string          `json:"topic,omitempty"`
	Priority *int            `json:"priority,omitempty"` // not known of a completed item
	Payload  []byte          `json:"payload,omitempty"`  // base64
	Attempts int             `json:"attempts"`
	Enqueued *time.Time      `json:"enqueued,omitempty"`
	Vesting  *time.Time      `json:"vesting,omitempty"`
	Since    *time.Time      `json:"since,omitempty"`
	Owner    string          `json:"owner,omitempty"`
	Fence    int64           `json:"fence,string"`
	Why      string          `json:"why,omitempty"`
	History  []queue.Attempt `json:"history,omitempty"`
}

func viewItem(i queue.Info) itemView {
	v := itemView{
		ID: i.ID, Where: string(i.Where), Topic: i.Topic, Payload: i.Payload, Attempts: i.Attempts,
		Enqueued: moment(i.Enqueued), Vesting: moment(i.Vesting), Since: moment(i.Since), Owner: i.Owner, Fence: i.Fence, Why: i.Why, History: i.History,
	}
	if i.Where != queue.Completed {
		v.Priority = &i.Priority
	}
	return v
}

func (v itemView) priority() string {
	if v.Priority == nil {
		return ""
	}
	return fmt.Sprint(*v.Priority)
}

func (v itemView) name() string { return v.ID }

// Lists of items have the columns that their items have values for: the topic, the payload
// and when an item was enqueued are not read with a list.
type (
	waitingItem struct{ itemView }
	takenItem   struct{ itemView }
	deadItem    struct{ itemView }
)

var (
	waitingHeader = []string{"ID", "WHERE", "PRIORITY", "ATTEMPTS", "VESTS", "LAST ERROR"}
	takenHeader   = []string{"ID", "PRIORITY", "ATTEMPTS", "SINCE", "OWNER", "FENCE"}
	deadHeader    = []string{"ID", "PRIORITY", "ATTEMPTS", "DIED", "WHY"}
)

func (v waitingItem) cells() []string {
	last := ""
	if n := len(v.History); n > 0 {
		last = v.History[n-1].Error
	}
	return []string{v.ID, v.Where, v.priority(), number(v.Attempts), at(v.Vesting), shorten(firstLine(last))}
}

func (v takenItem) cells() []string {
	return []string{v.ID, v.priority(), number(v.Attempts), at(v.Since), v.Owner, number(v.Fence)}
}

func (v deadItem) cells() []string {
	return []string{v.ID, v.priority(), number(v.Attempts), at(v.Since), shorten(firstLine(v.Why))}
}

// reason is why the item is dead. The list of attempts has the rest of a long error.
func (v itemView) reason() string {
	if len(v.History) > 0 {
		return firstLine(v.Why)
	}
	return v.Why
}

func (v itemView) text(w io.Writer) {
	vests := "Vested"
	if v.Where == string(queue.Later) {
		vests = "Vests"
	}
	fields(w, 10, [][2]string{
		{"ID", v.ID},
		{"Where", v.Where},
		{"Topic", v.Topic},
		{"Priority", v.priority()},
		{"Attempts", number(v.Attempts)},
		{"Enqueued", at(v.Enqueued)},
		{vests, at(v.Vesting)},
		{"Since", at(v.Since)},
		{"Owner", v.Owner},
		{"Fence", number(v.Fence)},
		{"Why", v.reason()},
		{"Payload", text(v.Payload)},
	})
	for _, h := range v.History {
		_, _ = fmt.Fprintf(w, "%10d. %s %s by %s: ", h.Number, doctor.Stamp(h.At), h.Ending, clean(h.Owner))
		paragraph(w, 12, h.Error)
	}
}
