package main

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/work"
)

// workView is a record of work as it is shown.
type workView struct {
	Key        string     `json:"key"`
	State      string     `json:"state"`
	Attempt    int        `json:"attempt"`
	Fence      int64      `json:"fence,string"`
	Owner      string     `json:"owner,omitempty"`
	Instance   string     `json:"instance,omitempty"`
	Claim      string     `json:"claim,omitempty"`
	Begun      *time.Time `json:"begun,omitempty"`
	Ended      *time.Time `json:"ended,omitempty"`
	NotBefore  *time.Time `json:"notBefore,omitempty"`
	Error      string     `json:"error,omitempty"`
	Stack      string     `json:"stack,omitempty"`
	Result     string     `json:"result,omitempty"`
	Note       string     `json:"note,omitempty"`
	AtMostOnce bool       `json:"atMostOnce,omitempty"`
}

func viewWork(r work.Record) workView {
	return workView{
		Key: r.Key, State: string(r.State), Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner, Instance: r.Instance, Claim: r.Claim,
		Begun: moment(r.Begun), Ended: moment(r.Ended), NotBefore: moment(r.NotBefore), Error: r.Error, Stack: r.Stack,
		Result: r.Result, Note: r.Note, AtMostOnce: r.AtMostOnce,
	}
}

func (v workView) name() string { return v.Key }

var workHeader = []string{"KEY", "STATE", "ATTEMPT", "FENCE", "OWNER", "BEGUN", "NOT BEFORE", "AT MOST ONCE", "ERROR"}

func (v workView) cells() []string {
	return []string{v.Key, v.State, number(v.Attempt), number(v.Fence), v.Owner, at(v.Begun), at(v.NotBefore), v.onceCell(), shorten(firstLine(v.Error))}
}

// onceCell marks work that nobody begins again after its owner died.
func (v workView) onceCell() string {
	if v.AtMostOnce {
		return "yes"
	}
	return ""
}

// onceText says what "at most once" asks of the operator.
func (v workView) onceText() string {
	switch state := work.State(v.State); {
	case !v.AtMostOnce:
		return ""
	case state == work.StateOrphaned || state == work.StateDead:
		return "yes: no caller begins it again. If its effect did not happen, retry it; if it did, leave or forget it"
	}
	return "yes: no caller begins it again if its owner dies"
}

// summary is one line about the record.
func (v workView) summary() string {
	s := v.State
	if v.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d by %s", v.Attempt, v.Owner)
	}
	if v.NotBefore != nil {
		s += ", next not before " + at(v.NotBefore)
	}
	if v.AtMostOnce {
		s += ", at most once"
	}
	return s
}
