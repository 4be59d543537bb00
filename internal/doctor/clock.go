package doctor

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// clockOff compares the clock of this host with that of a member, as its answers to
// HTTP show it: in full seconds. It returns 0 if the member does not speak HTTP, or if the
// scheme of its endpoint is unknown.
func (e *Examination) clockOff(ctx context.Context, endpoint string) time.Duration {
	switch scheme, _, has := strings.Cut(endpoint, "://"); {
	case !has && e.TLS != nil:
		endpoint = "https://" + endpoint
	case !has && e.Plain:
		endpoint = "http://" + endpoint
	case scheme != "http" && (scheme != "https" || e.TLS == nil):
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, e.Answer)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: e.TLS, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return 0
	}
	before := time.Now()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0
	}
	after := time.Now()
	_ = resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0
	}
	// The member's clock was between theirs and a second later, at a time between
	// before and after.
	ahead, behind := theirs.Sub(after), before.Sub(theirs.Add(time.Second))
	return max(ahead, behind, 0)
}

// clock judges how far the clock of a member is off.
func (e *Examination) clock(endpoint string, off time.Duration) {
	if off > time.Second {
		e.Add(Warning, "clock", "synchronize the clocks: schedules follow that of their owner, claims do not depend on it",
			"this host and %s differ by at least %s", endpoint, off.Round(time.Second))
	}
}
