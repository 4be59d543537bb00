package sqlguard

// ErrNoTransaction is for tests. To callers it is an error like those of the driver.
var ErrNoTransaction = errNoTransaction
