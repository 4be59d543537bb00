package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A metric is something that is measured: a column of a table.
type metric string

const (
	rate     metric = "a second"
	ratio    metric = "ratio"
	p50      metric = "p50 ms"
	p99      metric = "p99 ms"
	longest  metric = "longest ms"
	requests metric = "requests" // to etcd, for each of what is counted

	// CPU time for each of what is counted.
	clientCPU metric = "client µs"
	etcdCPU   metric = "etcd µs"

	early metric = "taken early" // from holders that were alive

	claiming metric = "claims a second" // acquiring alone

	claimed    metric = "claims"
	within     metric = "claimed in s"
	memory     metric = "bytes each" // of the client's memory, heap and stacks
	goroutines metric = "goroutines"
	requesting metric = "requests/s"
	perThing   metric = "requests/s each"
	traffic    metric = "KiB/s"
	cpu        metric = "client CPU %"
	etcdShare  metric = "etcd CPU %"
	statsTime  metric = "stats ms" // of a call that counts

	balanced   metric = "balanced in s"
	perMember  metric = "requests/s a member"
	moved      metric = "moves at a join"
	ownedAgain metric = "owned again in s"
)

// number prints three digits or more, with commas between thousands.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) < 0.1:
		return fmt.Sprintf("%.4f", v)
	case math.Abs(v) < 10:
		return fmt.Sprintf("%.2f", v)
	case math.Abs(v) < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(int64(math.Round(v)))
}

// thousands puts commas between them.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var s strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			s.WriteByte(',')
		}
		s.WriteRune(d)
	}
	return s.String()
}
