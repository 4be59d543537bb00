// Package storetest tests an objectguard.Store against the contract of that
// interface. Run it against the kind of server that is used in production:
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) objectguard.Store {
//			return newStore(t)
//		})
//	}
//
// A server that accepts a conditional write and ignores the condition fails. No
// test can show that a store never returns stale content.
package storetest
