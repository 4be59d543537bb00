// Package jobstate has the state of a job as etcd has it, and what that means: which of its ticks
// are in progress, overdue or passed over, and why. It has no I/O, and reads no clock.
package jobstate
