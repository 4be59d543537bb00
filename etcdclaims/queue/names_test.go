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
		without, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		w.ok(err)
		for c, want := range map[*etcdclaims.Client]error{without: etcdclaims.ErrPassthrough, nil: etcdclaims.ErrNoClient, {}: etcdclaims.ErrNoClient} {
			for _, err := range queue.Names(w.Context(), c) {
				w.wantErr(err, want)
			}
			for _, err := range queue.Active(w.Context(), c) {
				w.wantErr(err, want)
			}
			_, err := queue.New(c, queue.Config{Name: "q"})
			w.wantErr(err, want)
			_, err = queue.Open(w.Context(), c, "q")
			w.wantErr(err, want)
			w.wantErr(queue.WorkMany(w.Context(), c, queue.ManyConfig{}), want)
		}
	})
}
