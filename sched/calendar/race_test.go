//go:build race

package calendar_test

// someOf is how many of n draws a test makes: the race detector makes each of them
// some ten times as expensive.
func someOf(n int) int { return max(n/8, 1) }
