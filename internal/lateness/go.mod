// The schedulers that package sched is measured beside: whoever requires the SDK
// does not require these. This module is never published and nothing imports it.
module github.com/etcdclaims/claims/internal/lateness

go 1.26.0

require (
	github.com/etcdclaims/claims v0.0.0
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/robfig/cron/v3 v3.0.1
)

replace github.com/etcdclaims/claims => ../..
