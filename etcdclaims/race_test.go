//go:build race

package etcdclaims_test

import "time"

// defaultSoak is how long TestSoak lasts, in virtual time: the race detector makes
// an hour of it some ten times as expensive.
const defaultSoak = time.Hour
