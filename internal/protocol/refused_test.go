package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
)

// A name that a shared claim was to have is free again if its try was refused, and nothing of it can arrive any more.
func TestRefused(t *testing.T) {
	t.Parallel()
	held := func(m *model) { m.has("o", exclusive()) }
	for script, tt := range map[string]struct {
		before func(m *model)
		want   bool
	}{
		"take":                            {nil, false},
		"take reply":                      {nil, false}, // it has the key
		"take reply learnt # held":        {held, true},
		"take refused":                    {nil, true},
		"take transient":                  {nil, true},
		"take time-up":                    {nil, false},
		"take lose reply # held":          {held, false},
		"take lose-reply reply":           {nil, false},
		"take late reply":                 {nil, false},
		"join reply time-up # held":       {held, true}, // and its place is undone
		"join lose-reply reply # held":    {held, false},
		"take reply learnt # a namesake":  {func(m *model) { m.has("c", shared()) }, false},
		"join reply learnt # a namesake":  {func(m *model) { m.has("c", shared()) }, false},
		"join reply woken # held, waits":  {held, false},
		"take session-ended":              {nil, false},
		"take lose time-up":               {nil, false},
		"take late time-up # unconfirmed": {nil, false},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.before != nil {
				tt.before(m)
			}
			p := m.plays(m.caller("c", shared(), noEpoch))
			p.acts(script)
			if got := p.try.Refused(); got != tt.want {
				t.Errorf("refused: %v, after %v", got, p.said)
			}
			if p.acq.Phase() != protocol.Ended && tt.want {
				t.Error("it has not ended")
			}
		})
	}
}
