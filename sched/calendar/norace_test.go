//go:build !race

package calendar_test

// someOf is how many of n draws a test makes.
func someOf(n int) int { return n }
