package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/explain"
)

// itemView is an item of a queue. The topic, the payload and when an item was enqueued are not
// read with a list.
type itemView struct {
	ID       string          `json:"id" col:"ID"`
	Where    string          `json:"where" col:"WHERE"`
	Topic    string          `json:"topic,omitempty" col:"TOPIC"`
	Key      string          `json:"partitionKey,omitempty" col:"PARTITION KEY"`
	Priority *int            `json:"priority,omitempty" col:"PRIORITY"` // not known of a completed item
	Attempts int             `json:"attempts" col:"ATTEMPTS"`
	Enqueued time.Time       `json:"enqueued,omitzero" col:"ENQUEUED"`
	Vesting  time.Time       `json:"vesting,omitzero" col:"VESTS"`
	Since    time.Time       `json:"since,omitzero" col:"SINCE"`
	Owner    string          `json:"owner,omitempty" col:"OWNER"`
	Fence    int64           `json:"fence,string" col:"FENCE"`
	Why      string          `json:"why,omitempty" col:"WHY,short"`
	Payload  []byte          `json:"payload,omitempty" col:"PAYLOAD"` // base64
	Result   []byte          `json:"result,omitempty" col:"RESULT"`   // base64
	History  []queue.Attempt `json:"history,omitempty"`

	LastError string `json:"-" col:"LAST ERROR,short"` // of the last attempt
}

const (
	waitingColumns = "ID,WHERE,ATTEMPTS,VESTS,PRIORITY,PARTITION KEY,LAST ERROR"
	takenColumns   = "ID,OWNER,SINCE,ATTEMPTS,PRIORITY,PARTITION KEY,FENCE"
	deadColumns    = "ID,ATTEMPTS,WHY,SINCE,PRIORITY"
)

func viewItem(i queue.Info) itemView {
	v := itemView{
		ID: i.ID, Where: string(i.Where), Topic: i.Topic, Key: i.PartitionKey, Payload: i.Payload, Attempts: i.Attempts,
		Enqueued: i.Enqueued.UTC(), Vesting: i.Vesting.UTC(), Since: i.Since.UTC(),
		Owner: i.Owner, Fence: i.Fence, Why: i.Why, Result: i.Result, History: i.History,
	}
	if i.Where != queue.Completed {
		v.Priority = &i.Priority
	}
	if n := len(v.History); n > 0 {
		v.LastError = v.History[n-1].Error
	}
	return v
}

func (v itemView) text(w io.Writer) {
	shown := v
	shown.LastError = ""    // History has it
	if len(v.History) > 0 { // which has the rest of a long error
		shown.Why = firstLine(v.Why)
	}
	details(w, shown)
	for _, h := range v.History {
		_, _ = fmt.Fprintf(w, "%10d. %s %s by %s: ", h.Number, explain.Stamp(h.At), h.Ending, clean(h.Owner))
		paragraph(w, 12, h.Error)
	}
}
