package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

func TestNames(t *testing.T) {
	virtually(t, func(w *world) {
		claims := etcdClaims(w)
		read := func() (names []string) {
			for name, err := range queue.Names(w.Context(), claims) {
				w.ok(err)
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		w.want(len(read()), 0)
		want := []string{"<b>", "jobs", "mails"}
		for _, name := range want {
			q, _ := w.process(queue.Config{Name: name})
			w.enqueue(q, "an item")
			l := w.claim(q)
			w.ok(l.Complete(w.Context()))
		}
		time.Sleep(3 * time.Minute) // they are not active any more
		if got := read(); !slices.Equal(got, want) {
			w.Errorf("names are %q", got)
		}
		var none *etcdclaims.Client
		for _, err := range queue.Names(w.Context(), none) {
			w.wantErr(err, etcdclaims.ErrPassthrough)
		}
	})
}
