package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/grpc/codes"
)

func TestStaleError(t *testing.T) {
	t.Parallel()
	token := fencing.Token{Key: "orders/42", Fence: 33}
	for want, err := range map[string]error{
		"fence 34 is the newest": &fencing.StaleError{Token: token, Newest: 34},
		"no longer holds":        &fencing.StaleError{Token: token},
	} {
		err = fmt.Errorf("writing: %w", err)
		if !errors.Is(err, fencing.ErrStale) || errors.Is(err, fencing.ErrUnknown) {
			t.Errorf("%v", err)
		}
		for _, part := range []string{want, token.String()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	token := fencing.Token{Key: "k", Fence: 2}
	var asked []string
	gate := func(name string, err error) fencing.Gate {
		return fencing.GateFunc(func(_ context.Context, got fencing.Token) error {
			asked = append(asked, name)
			if got != token {
				t.Errorf("%s was asked for %v", name, got)
			}
			return err
		})
	}
	full := errors.New("disk full")
	if err := fencing.Seal(t.Context(), token, gate("a", nil), gate("b", nil)); err != nil {
		t.Error(err)
	}
	if err := fencing.Seal(t.Context(), token, gate("c", nil), gate("d", full), gate("e", nil)); !errors.Is(err, full) {
		t.Error(err)
	}
	if got, want := strings.Join(asked, ""), "abcd"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if err := fencing.Seal(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// What servers in other languages implement: these numbers and words stay.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, want := range []struct {
		err    error
		reason string
		status int
		code   codes.Code
	}{
		{&fencing.StaleError{Token: fencing.Token{Key: "k", Fence: 1}}, "STALE_FENCE", http.StatusPreconditionFailed, codes.FailedPrecondition},
		{fencing.ErrNoToken, "MISSING_FENCE", http.StatusPreconditionRequired, codes.InvalidArgument},
		{fencing.ErrMalformed, "MALFORMED_FENCE", http.StatusBadRequest, codes.InvalidArgument},
		{fencing.ErrHeld, "HELD", http.StatusConflict, codes.Aborted},
		{fencing.ErrLost, "CLAIM_LOST", http.StatusConflict, codes.Aborted},
		{fencing.ErrUnknown, "OUTCOME_UNKNOWN", http.StatusGatewayTimeout, codes.Unknown},
	} {
		got, ok := fencing.RefusalOf(fmt.Errorf("writing: %w", want.err))
		if !ok || got.Reason != want.reason || got.Status != want.status || codes.Code(got.Code) != want.code || got.Title == "" {
			t.Errorf("%v: %+v, %v", want.err, got, ok)
		}
		if back := got.Err(); !errors.Is(want.err, back) {
			t.Errorf("%s stands for %v, want %v", got.Reason, back, want.err)
		}
		if !strings.HasSuffix(got.Type(), "#"+want.reason) {
			t.Errorf("type %s", got.Type())
		}
	}
	// A write that was under way when its claim was lost may have been carried out.
	if got, _ := fencing.RefusalOf(fmt.Errorf("%w (%w)", fencing.ErrUnknown, fencing.ErrLost)); got.Reason != "OUTCOME_UNKNOWN" {
		t.Errorf("%+v", got)
	}
	if got, ok := fencing.RefusalOf(errors.New("disk full")); ok || got != (fencing.Refusal{}) {
		t.Errorf("%+v", got)
	}
	if got, ok := fencing.RefusalOf(nil); ok {
		t.Errorf("%+v", got)
	}
	if err := (fencing.Refusal{Reason: "QUOTA"}).Err(); err != nil {
		t.Error(err)
	}
}
