// Package alerts tests the boards and alert rules of docs/grafana against what a fleet with
// telemetry exports, and has each alert fire.
package alerts
