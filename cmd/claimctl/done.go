package main

import (
	"io"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/explain"
)

// doneView is what a verb changed. Each verb sets the names that it took and what it
// learned.
type doneView struct {
	Done    string    `json:"done"` // such as released or paused
	Key     string    `json:"key,omitempty"`
	Fence   int64     `json:"fence,omitempty,string"` // of the term that was ended
	Slots   *int      `json:"slots,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Group   string    `json:"group,omitempty"`
	Member  string    `json:"member,omitempty"` // of the group
	Job     string    `json:"job,omitempty"`
	Tag     string    `json:"tag,omitempty"`    // of jobs
	Nominal time.Time `json:"nominal,omitzero"` // the tick
	Run     string    `json:"run,omitempty"`    // ID of the run, or of the backfill, that was requested
	Until   time.Time `json:"until,omitzero"`   // when the pause ends by itself
	Queue   string    `json:"queue,omitempty"`
	Item    string    `json:"item,omitempty"`
	Items   *int      `json:"items,omitempty"` // how many
}

// name is the most specific of the names: scripts continue with it.
func (v doneView) name() string {
	count := ""
	if v.Items != nil {
		count = strconv.Itoa(*v.Items)
	}
	for _, name := range []string{v.Run, explain.Stamp(v.Nominal), v.Item, count, v.Job, v.Tag, v.Member, v.Queue, v.Key} {
		if name != "" {
			return name
		}
	}
	return v.Group
}

// done prints what was done unless there is an error: the text in a table, the view in
// the other formats.
func (a *app) done(err error, v view, format string, args ...any) error {
	if err != nil {
		return err
	}
	return printOne(a, v, func(io.Writer) { a.say(format, args...) })
}
