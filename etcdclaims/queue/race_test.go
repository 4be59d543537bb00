//go:build race

package queue_test

// The race detector makes the runs of TestChaos and the herds some five times as
// expensive: there are fewer of them, of each kind.
const racing = true
