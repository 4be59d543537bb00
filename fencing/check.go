package fencing

import "context"

type checkKey struct{}

// WithCheck returns a context whose Check asks check, and before it what ctx
// would have asked: work under several claims goes on while it has all of them.
// Whoever makes claims puts their check into the contexts of work; check must be
// quick, do no I/O, and be safe for concurrent use.
func WithCheck(ctx context.Context, check func() error) context.Context {
	if outer, ok := ctx.Value(checkKey{}).(func() error); ok {
		inner := check
		check = func() error {
			if err := outer(); err != nil {
				return err
			}
			return inner()
		}
	}
	return context.WithValue(ctx, checkKey{}, check)
}

// Check returns nil if the claims that ctx stands for are held by the clock's
// account now, and for a context without any. It sends nothing: call it right
// before each effect of work that was only given a context. That the context has
// ended does not matter: it ends a drain before its claim does, so that work can
// be finished; and in a process that was stopped for a while it ends late.
//
// The error matches ErrLost, or ErrUnknown if that has to be found out; once a
// claim was given up it is an error of who made it.
func Check(ctx context.Context) error {
	if check, ok := ctx.Value(checkKey{}).(func() error); ok {
		return check()
	}
	return nil
}
