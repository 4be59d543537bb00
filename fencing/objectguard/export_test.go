package objectguard

// ErrInvalid is for tests. To callers it is a mistake of the program.
var ErrInvalid = errInvalid
