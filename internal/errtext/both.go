package errtext

// Both returns an error that matches what either error does. Unlike that of errors.Join its text is one
// line. If one of them is nil it is the other.
func Both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &both{a, b}
}

type both struct{ a, b error }

func (e *both) Error() string   { return OneLine(e.a.Error()) + "; " + Bare(e.b) }
func (e *both) Unwrap() []error { return []error{e.a, e.b} }
