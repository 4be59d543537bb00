package sched

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Ping reports the outcomes of ticks to an outside monitor, which raises an alarm when no
// report comes: a dead man's switch. It speaks the protocol of healthchecks.io: an HTTP
// POST to the URL of the job after a success, and to that URL with /fail after a failure.
// Its body is a line of text. Create it with NewPing, and set Hooks.Finished and
// Hooks.Left to its method Report.
//
// A request has no effect on the run, which is recorded before. It is not repeated: a
// success that the monitor does not receive looks like a job that did not run.
type Ping struct {
	urls    map[string]string
	timeout time.Duration
	client  *http.Client
	log     *zap.Logger
	slots   chan struct{}
}

// PingConfig configures a Ping.
type PingConfig struct {
	// URLs has the URL for each job that is reported. Such URLs are often secrets: the log
	// does not have them.
	URLs map[string]string
	// Timeout bounds each request. Default: 10 s.
	Timeout time.Duration
	// Client makes the requests. Default: http.DefaultClient.
	Client *http.Client
	// Logger receives a warning for each request that fails. Default: none.
	Logger *zap.Logger
}

// mostPings is how many requests of a Ping are in progress at a time. Further ones are
// dropped, with a warning.
const mostPings = 64

// NewPing returns a Ping. It returns an error if a URL is not an absolute one of http or
// https, or if the Timeout is negative.
func NewPing(cfg PingConfig) (*Ping, error) {
	p := &Ping{urls: make(map[string]string), timeout: cfg.Timeout, client: cfg.Client, log: cfg.Logger, slots: make(chan struct{}, mostPings)}
	for job, text := range cfg.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("sched: ping: the URL of job " + job + " is not an absolute one of http or https")
		}
		p.urls[job] = text
	}
	switch {
	case p.timeout < 0:
		return nil, errors.New("sched: ping: Timeout must not be negative")
	case p.timeout == 0:
		p.timeout = 10 * time.Second
	}
	if p.client == nil {
		p.client = http.DefaultClient
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	return p, nil
}

// Report sends the outcome of a tick in the background, and returns at once. Success is
// OutcomeOK. Failures are runs that failed and have no other attempt, lost runs, ticks
// that were late or missed, and ticks that were replaced after an attempt had failed. Other
// outcomes are not sent.
func (p *Ping) Report(e Entry) {
	to, known := p.urls[e.Job]
	switch e.Outcome {
	case OutcomeOK:
	case OutcomeFailed, OutcomePanicked, OutcomeTimeout, OutcomeLost, OutcomeLate, OutcomeMissed, OutcomeReplaced:
		if e.Again || e.Outcome == OutcomeReplaced && e.Attempt == 0 {
			return
		}
		to = fail(to)
	default:
		return
	}
	if !known {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		p.log.Warn("monitor not pinged: too many requests are in progress", zap.String("job", e.Job), zap.String("tick", e.ID))
		return
	}
	go func() {
		defer func() { <-p.slots }()
		if err := p.send(to, e.String()); err != nil {
			p.log.Warn("monitor not pinged", zap.String("job", e.Job), zap.String("tick", e.ID), zap.Error(err))
		}
	}()
}

// fail returns the URL for failures: the query, if there is one, stays at the end.
func fail(to string) string {
	path, query, any := strings.Cut(to, "?")
	if path = strings.TrimSuffix(path, "/") + "/fail"; any {
		path += "?" + query
	}
	return path
}

func (p *Ping) send(to, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(text))
	if err != nil {
		return errors.New("the URL is invalid")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		var with *url.Error // its text has the URL
		if errors.As(err, &with) {
			err = with.Err
		}
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errors.New("the monitor answered " + resp.Status)
	}
	return nil
}
