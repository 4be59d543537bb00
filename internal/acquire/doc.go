// Package acquire is how a call acquires keys: attempts, the requests that they send, what becomes of a lost reply, and
// how an attempt that no caller wants any more is undone. Those that wait in line are package line, on this one.
//
// A [Call] is what a caller wants. An [Attempt] is one try of a call in a session, as package protocol knows it. What it
// sends, and what each reply means, its protocol.Acquisition decides. [Attempt.Drive] carries that out. Each attempt ends
// with a [Result]. [Acquirer.Loop] makes attempts until one has an answer.
package acquire
