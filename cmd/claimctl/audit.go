package main

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

// actionView is what an operator did.
type actionView struct {
	Revision int64     `json:"revision,string" col:"REVISION"`
	At       time.Time `json:"at" col:"AT"`
	Who      string    `json:"who,omitempty" col:"WHO"`
	Verb     string    `json:"verb,omitempty"`
	Key      string    `json:"key,omitempty"`
	Group    string    `json:"group,omitempty"`
	Job      string    `json:"job,omitempty"`
	Member   string    `json:"member,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	Item     string    `json:"item,omitempty"`
	Detail   string    `json:"detail,omitempty" col:"DETAIL,short"`
	Why      string    `json:"why,omitempty" col:"WHY,short"`
	Error    string    `json:"error,omitempty"` // why it cannot be read

	What string `json:"-" col:"WHAT,short"` // the verb and its object
}

const actionColumns = "AT,WHO,WHAT,WHY,DETAIL,REVISION"

func viewAction(is admin.Action) actionView {
	v := actionView{
		Revision: is.Revision, At: is.At.UTC(), Who: is.Who, Verb: is.Verb, Key: is.Key, Group: is.Group, Job: is.Job,
		Member: is.Member, Queue: is.Queue, Item: is.Item, Detail: is.Detail, Why: is.Why, What: explain.Action(is),
	}
	if is.Err != nil {
		v.Error = is.Err.Error()
	}
	return v
}
