// Package fencetest tests a fencing.Gate against the contract of that interface:
//
//	func TestGate(t *testing.T) {
//		fencetest.TestGate(t, func(t *testing.T) fencetest.Subject {
//			return fencetest.Subject{Gate: newGate(t)}
//		})
//	}
//
// A gate that passes compares fences correctly, for each key independently, under
// concurrent calls. Whether it guards a write can be tested only together with
// the write: set Subject.Write to how a write is made, and Subject.Crash to how a
// process dies in the middle of one.
//
// The suite tests the gate, not its production environment. A database that loses
// committed data breaks every gate.
package fencetest
