package jobs

// The errors of a program that is put together wrongly, for tests.
var (
	ErrNotLocked = errNotLocked
	ErrNoTick    = errNoTick
)
