//go:build !race

package sched_test

// someOf is how many of n draws a test makes.
func someOf(n int) int { return n }
