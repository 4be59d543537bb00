// Package storetest has what objectguard.Store promises as tests, for stores of
// anybody's, on the server that is used in production:
//
//	func TestStore(t *testing.T) {
//		storetest.TestStore(t, func(t *testing.T) objectguard.Store {
//			return newStore(t)
//		})
//	}
//
// Servers that take a conditional write and ignore its condition fail. What no
// test can show is that a store never answers with what was there before.
package storetest
