package doctor

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
)

// clockReading is how the clock of a member compares with that of this host.
type clockReading struct {
	known bool
	ahead time.Duration // of this host, at least; below 0 if it is behind
}

// readClock compares the clock of this host with that of a member, as its answers to
// HTTP show it: in full seconds. It is not known if the member does not speak HTTP, or if the
// scheme of its endpoint is unknown.
func (e *Examination) readClock(ctx context.Context, endpoint string) clockReading {
	switch scheme, _, has := strings.Cut(endpoint, "://"); {
	case !has && e.TLS != nil:
		endpoint = "https://" + endpoint
	case !has && e.Plain:
		endpoint = "http://" + endpoint
	case scheme != "http" && (scheme != "https" || e.TLS == nil):
		return clockReading{}
	}
	ctx, cancel := context.WithTimeout(ctx, e.Answer)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: e.TLS, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return clockReading{}
	}
	before := clock.Clock{}.Time()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return clockReading{}
	}
	after := clock.Clock{}.Time()
	_ = resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return clockReading{}
	}
	return compareClocks(before, after, theirs)
}

// compareClocks compares with a clock that showed a full second at a time between before
// and after: it was between that second and the next one.
func compareClocks(before, after, theirs time.Time) clockReading {
	ahead, behind := theirs.Sub(after), before.Sub(theirs.Add(time.Second))
	if behind > 0 {
		return clockReading{known: true, ahead: -behind}
	}
	return clockReading{known: true, ahead: max(ahead, 0)}
}

// clock judges how far the clock of a member is off.
func (e *Examination) clock(endpoint string, r clockReading) {
	const remedy = "synchronize the clocks: schedules follow that of their owner, claims do not depend on it"
	switch off := r.ahead.Abs().Round(time.Second); {
	case !r.known:
		e.Add(Note, "clock", "compare it by hand: schedules follow the clock of their owner", "%s was not compared with this host: it did not answer HTTP with its time", endpoint)
	case r.ahead > time.Second:
		e.Add(Warning, "clock", remedy, "%s is at least %s ahead of this host", endpoint, off)
	case r.ahead < -time.Second:
		e.Add(Warning, "clock", remedy, "%s is at least %s behind this host", endpoint, off)
	default:
		e.Well("clock", "%s is within about 2s of this host; its answers have full seconds", endpoint)
	}
}
