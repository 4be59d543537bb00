package acquire

import (
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
)

// value is Holder.Encode for the value that is made most often, with what
// does not change put together once.
func (ac *Acquirer) value(a *Attempt) string {
	if a.Put.Attempt() > 0 || a.Epoch.Value > 0 || a.Call.Suspectable || a.Call.Preference > 0 || a.Name != "" || a.Call.Labels != nil {
		return protocol.Holder{
			Claim: a.ID, Owner: ac.Owner, Instance: ac.Store.Layout.Instance,
			Since: keyspace.TimeText(a.since), Attempt: a.Put.Attempt(), TTL: a.ttl, Epoch: a.Epoch.Value,
			Suspectable: a.Call.Suspectable, Preference: a.Call.Preference, Place: a.Name, Labels: a.Call.Labels,
		}.Encode()
	}
	var room [512]byte // on the stack
	b := append(room[:0], `{"v":1,"claim":"`...)
	b = append(b, a.ID...)
	b = append(b, `","ttl":`...)
	b = strconv.AppendInt(b, a.ttl, 10)
	b = append(b, `,"since":"`...)
	b = a.since.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ac.valueEnd...)
	return string(b)
}

// valueEnd is the rest of a claim's value.
func valueEnd(owner, instance string) string {
	return `",` + strings.TrimPrefix(keyspace.Encode(struct {
		Owner    string `json:"owner"`
		Instance string `json:"instance"`
	}{owner, instance}), "{")
}
