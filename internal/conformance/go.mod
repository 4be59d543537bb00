// The libraries that packages of the SDK fit together with, to test that with:
// whoever requires the SDK does not require these. This module is never
// published and nothing imports it.
module github.com/etcdclaims/claims/internal/conformance

go 1.26.0

require (
	github.com/etcdclaims/claims v0.0.0
	github.com/riverqueue/river v0.51.0
	github.com/robfig/cron/v3 v3.0.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/riverqueue/river/riverdriver v0.51.0 // indirect
	github.com/riverqueue/river/rivershared v0.51.0 // indirect
	github.com/riverqueue/river/rivertype v0.51.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace github.com/etcdclaims/claims => ../..
