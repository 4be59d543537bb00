// Package fencetest has the contract of fencing.Gate as tests, for gates of
// anybody's:
//
//	func TestGate(t *testing.T) {
//		fencetest.TestGate(t, func(t *testing.T) fencetest.Subject {
//			return fencetest.Subject{Gate: newGate(t)}
//		})
//	}
//
// A gate that passes compares fences rightly, for each key on its own, whatever
// comes at once. Whether it guards a write can only be tested with the write: say
// in Subject how it is done, and how a process that dies in the middle of it is
// imitated.
//
// The suite tests what it is given, not what surrounds it in production: a
// database that loses what it has committed fails every gate.
package fencetest
