package sched

import (
	"testing"
	_ "time/tzdata" // for machines without a tz database

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }
