//go:build !race

package sched_test

import "github.com/etcdclaims/claims/internal/testetcd"

// someOf returns how many of n rounds a test does: all of them with -long.
func someOf(n int) int {
	if testetcd.Long() {
		return n
	}
	return max(n/4, 1)
}
