//go:build !race

package etcdclaims_test

import "time"

// defaultSoak is how long TestSoak lasts, in virtual time.
const defaultSoak = 2 * time.Hour
