package main

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out := w.ok("audit", "-o", "json"); out != "[]\n" {
		t.Errorf("of nothing: %q", out)
	}
	q, err := queue.New(w.client("a"), queue.Config{Name: "mails"})
	w.noErr(err)
	_, err = q.Enqueue(t.Context(), queue.NewItem(nil, queue.ID("17")))
	w.noErr(err)
	w.ok("queue", "pause", "mails", "--reason", "INC-311", "--as", "anna")
	w.ok("queue", "resume", "mails", "--why", "INC-311 is over", "--as", "bert")
	w.ok("queue", "cancel", "mails", "17", "--yes")
	w.fails(exitFailure, "not paused", "queue", "resume", "mails")
	all := as[[]actionView](w, "audit")
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	if got := all[2]; got.Who != "anna" || got.Verb != "queue pause" || got.Queue != "mails" || got.Why != "INC-311" || got.Revision == 0 {
		t.Errorf("%+v", got)
	}
	if got := all[0]; got.Who != userAtHost() || got.Item != "17" {
		t.Errorf("%+v", got)
	}
	out := w.ok("audit", "-n", "2", "--since", "1h", "-o", "wide")
	if strings.Contains(out, "INC-311\n") || !strings.Contains(out, "queue resume mails") || !strings.Contains(out, "INC-311 is over") {
		t.Error(out)
	}
	for line := range strings.Lines(w.ok("audit")) {
		if len([]rune(line)) > 81 {
			t.Errorf("%d characters: %s", len([]rune(line)), line)
		}
	}
	w.ok("audit", "--sort-by", "-who")
	w.fails(exitUsage, "must be positive", "audit", "-n", "0")
}
