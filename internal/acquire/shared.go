package acquire

import "github.com/etcdclaims/claims/internal/protocol"

// Knowing makes the record of a shared key the one that claims of this client share, if there are
// any. So the first request for the key need not be refused.
func (ac *Acquirer) Knowing(m protocol.Mode) protocol.Mode {
	s, ok := m.(protocol.Shared)
	if !ok {
		return m
	}
	epoch := ac.Store.Epoch().Value
	return s.Knowing(ac.Keys.RecordRev(s.Keys().User, epoch), epoch)
}
