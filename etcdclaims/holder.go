package etcdclaims

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
)

// claimValue is holder.encode for the value that is made most often, with what
// does not change put together once.
func (c *Client) claimValue(a *attempt) string {
	if c.valueEnd == "" || a.number() > 0 || a.Epoch.Value > 0 || a.opts.given.has(optionSuspectable) || a.opts.preference > 0 {
		return protocol.Holder{
			Claim: a.ID, Owner: c.cfg.Owner, Instance: c.store.Layout.Instance,
			Since: keyspace.TimeText(a.since), Attempt: a.number(), TTL: a.ttl, Epoch: a.Epoch.Value,
			Suspectable: a.opts.given.has(optionSuspectable), Preference: a.opts.preference,
		}.Encode()
	}
	b := make([]byte, 0, 160+len(c.valueEnd))
	b = append(b, `{"v":1,"claim":"`...)
	b = append(b, a.ID...)
	b = append(b, `","ttl":`...)
	b = strconv.AppendInt(b, a.ttl, 10)
	b = append(b, `,"since":"`...)
	b = a.since.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, c.valueEnd...)
	return string(b)
}

// valueEnd is the rest of a claim's value.
func valueEnd(owner, instance string) string {
	return `",` + strings.TrimPrefix(encode(struct {
		Owner    string `json:"owner"`
		Instance string `json:"instance"`
	}{owner, instance}), "{")
}

func encode(v any) string { return keyspace.Encode(v) }

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !printable(host) {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}
