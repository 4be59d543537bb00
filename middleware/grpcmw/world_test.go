package grpcmw_test

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testclaims"
)

const sec = time.Second

type world = testclaims.Pair

// inWorld runs a subtest in a world of its own, beside the others.
var inWorld = testclaims.PairCase

// limit are the options that the loss of this name needs.
func limit(name string) []etcdclaims.AcquireOption {
	if name == "max hold" {
		return []etcdclaims.AcquireOption{etcdclaims.MaxHold(20 * sec)}
	}
	return nil
}
