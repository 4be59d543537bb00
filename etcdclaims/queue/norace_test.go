//go:build !race

package queue_test

const racing = false
