package sched

import "container/heap"

// queue is a priority queue whose elements can be moved and removed.
type queue[T comparable] struct {
	less  func(a, b T) bool
	items []T
	place map[T]int // in items
}

func newQueue[T comparable](less func(a, b T) bool) *queue[T] {
	return &queue[T]{less: less, place: make(map[T]int)}
}

// set adds an element, or moves it after its order has changed.
func (q *queue[T]) set(item T) {
	if i, ok := q.place[item]; ok {
		heap.Fix((*heapOf[T])(q), i)
		return
	}
	heap.Push((*heapOf[T])(q), item)
}

// drop removes an element, if the queue has it.
func (q *queue[T]) drop(item T) {
	if i, ok := q.place[item]; ok {
		heap.Remove((*heapOf[T])(q), i)
	}
}

// first returns the least element.
func (q *queue[T]) first() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	return q.items[0], true
}

// takeWhile removes and returns elements, least first, as long as wanted returns true,
// up to limit of them.
func (q *queue[T]) takeWhile(limit int, wanted func(T) bool) (taken []T) {
	for len(taken) < limit {
		item, ok := q.first()
		if !ok || !wanted(item) {
			break
		}
		q.drop(item)
		taken = append(taken, item)
	}
	return taken
}

// heapOf has the methods that package heap wants.
type heapOf[T comparable] queue[T]

func (h *heapOf[T]) Len() int           { return len(h.items) }
func (h *heapOf[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

func (h *heapOf[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.place[h.items[i]], h.place[h.items[j]] = i, j
}

func (h *heapOf[T]) Push(item any) {
	h.place[item.(T)] = len(h.items)
	h.items = append(h.items, item.(T))
}

func (h *heapOf[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	delete(h.place, item)
	return item
}
