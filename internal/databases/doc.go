// Package databases tests package sqlguard with SQLite, PostgreSQL and MariaDB,
// and measures what it costs there. It has no code.
//
// The servers are started by the tests, from what is installed (Debian:
// postgresql, mariadb-server); tests of a server that is not there are skipped.
// MySQL itself is not in Debian: -mysql takes the DSN of one to test with, by a
// user who may create databases.
//
//	go test ./...
//	go test -run '^$' -bench . -benchtime 2000x
package databases
