package inbox

import (
	"slices"
	"sync"
	"testing"
)

func TestWorkKeepsTheOrder(t *testing.T) {
	i := New()
	i.Work()
	var got []int
	for n := range 3 {
		i.Post(func() { got = append(got, n) })
	}
	<-i.News
	if i.Work(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("got %v", got)
	}
	i.Post(func() { i.Post(func() { got = nil }) }) // one that posts is not waited for
	if i.Work(); got == nil {
		t.Error("what was posted meanwhile was called at once")
	}
	if i.Work(); got != nil {
		t.Error("what was posted meanwhile was not called")
	}
}

func TestPostFromManyGoroutines(t *testing.T) {
	const posts = 100
	i := New()
	var wg sync.WaitGroup
	n := 0 // only the owner changes it
	for range posts {
		wg.Go(func() { i.Post(func() { n++ }) })
	}
	for n < posts {
		<-i.News
		i.Work()
	}
	wg.Wait()
}
