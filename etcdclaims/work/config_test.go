package work_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// A config that cannot be meant is refused, and the error names the field and the bound.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	noErr(t, err)
	for _, tt := range []struct {
		cfg   work.Config
		words []string
	}{
		{work.Config{Retention: time.Nanosecond}, []string{"Retention 1ns", "2s"}},
		{work.Config{Retention: 1999 * time.Millisecond}, []string{"Retention 1.999s", "2s"}},
		{work.Config{DeadRetention: 731 * day}, []string{"DeadRetention 17544h", "17520h", "negative"}},
		{work.Config{DeadRetention: 29 * time.Second}, []string{"DeadRetention 29s", "30s"}},
		{work.Config{Retention: 366 * day}, []string{"Retention 8784h", "8760h", "negative"}},
	} {
		r, err := work.New(claims, tt.cfg)
		if err == nil || r != nil {
			t.Errorf("%+v was taken", tt.cfg)
			continue
		}
		for _, word := range tt.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not name %q", err, word)
			}
		}
	}
	for _, cfg := range []work.Config{{}, {MaxAttempts: -1, Retention: -1, DeadRetention: -1}, {Retention: 2 * time.Second, DeadRetention: 30 * time.Second}} {
		_, err := work.New(claims, cfg)
		noErr(t, err)
	}
}
