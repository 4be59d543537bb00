// Package priority has a priority queue whose elements can be moved and removed.
package priority

import "container/heap"

// Queue is a priority queue. Its methods are not safe for concurrent use.
type Queue[T comparable] struct {
	less  func(a, b T) bool
	items []T
	place map[T]int // in items
}

// New returns an empty queue, whose first element is the least.
func New[T comparable](less func(a, b T) bool) *Queue[T] {
	return &Queue[T]{less: less, place: make(map[T]int)}
}

// Set adds an element, or moves it after its order has changed.
func (q *Queue[T]) Set(item T) {
	if i, ok := q.place[item]; ok {
		heap.Fix((*heapOf[T])(q), i)
		return
	}
	heap.Push((*heapOf[T])(q), item)
}

// Drop removes an element, if the queue has it.
func (q *Queue[T]) Drop(item T) {
	if i, ok := q.place[item]; ok {
		heap.Remove((*heapOf[T])(q), i)
	}
}

// Len returns how many elements the queue has.
func (q *Queue[T]) Len() int { return len(q.items) }

// First returns the least element.
func (q *Queue[T]) First() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	return q.items[0], true
}

// TakeWhile removes and returns elements, least first, as long as wanted returns true,
// up to limit of them.
func (q *Queue[T]) TakeWhile(limit int, wanted func(T) bool) (taken []T) {
	for len(taken) < limit {
		item, ok := q.First()
		if !ok || !wanted(item) {
			break
		}
		q.Drop(item)
		taken = append(taken, item)
	}
	return taken
}

// heapOf has the methods that package heap wants.
type heapOf[T comparable] Queue[T]

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
