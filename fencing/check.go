package fencing

import "context"

type checkKey struct{}

// WithCheck returns a context whose Check calls check. If ctx already has a
// check, that one is called first: work under several claims continues only while
// all of them are held.
//
// Code that makes claims adds their check to the contexts of work. The check must
// return quickly, do no I/O, and be safe for concurrent use.
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

// Check returns nil while the claims behind ctx are held, judged by the local
// clock. It also returns nil if there is no claim behind ctx. It sends nothing:
// call it immediately before each effect.
//
// Check does not look at whether ctx has ended. The context of a claim ends some
// time before the claim expires, so that work can finish. In a process that was
// suspended, it ends late.
//
// If the claim can be suspected (etcdclaims.Suspectable), Check can succeed while the
// next owner already works, until the claim's deadline: only the fence refuses effects.
//
// The error matches ErrLost if the claim was lost, and ErrUnknown if that is
// still being determined. After the claim was released, Check returns an error of
// the package that made the claim.
func Check(ctx context.Context) error {
	if check, ok := ctx.Value(checkKey{}).(func() error); ok {
		return check()
	}
	return nil
}
