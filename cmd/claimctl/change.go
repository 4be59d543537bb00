package main

// A change is what a command changes. One rule holds for all commands that change something, and confirm
// applies it: --reason is kept with the change, or for claimctl audit. What no command brings back wants --yes.
// A command that finds by itself what it changes prints that with --dry-run, and changes nothing.
type change struct {
	reason string // usage of --reason; empty for forRecord
	needs  string // --reason is required: who reads it
	lost   string // what no command brings back
	only   string // the flag without which nothing is lost; empty for none
	finds  bool   // what it changes: see app.dry
}

// forRecord is the usage of --reason where only claimctl audit shows it.
const forRecord = "why, for claimctl audit"

// changes has each command that changes something. A term that ends is named by its fence: that is its
// confirmation.
var changes = map[string]change{
	"release":                {reason: "why, for the holder's log and claimctl audit"},
	"resize":                 {},
	"epoch raise":            {lost: "ends all claims under the prefix", finds: true},
	"restore":                {finds: true},
	"work retry":             {},
	"work forget":            {lost: "deletes the record for good"},
	"sched pause":            {reason: "note that is kept with the pause"},
	"sched resume":           {},
	"sched run":              {},
	"sched cancel":           {reason: "note for the records"},
	"sched backfill":         {},
	"sched forget":           {lost: "deletes the mark and the history of the job for good"},
	"sched reset":            {reason: "note that is kept with the mark"},
	"sched apply":            {lost: "removes the definitions that the file does not have", only: "prune", finds: true},
	"sched undefine":         {lost: "removes the definition for good"},
	"queue pause":            {reason: "note that is kept with the pause"},
	"queue resume":           {},
	"queue cancel":           {reason: "why, for the worker and claimctl audit", lost: "removes the item for good"},
	"queue dead redrive":     {},
	"queue dead redrive-all": {finds: true},
	"queue dead purge":       {lost: "removes dead letters for good", finds: true},
	"group evict":            {reason: "why, for the member's log and for show (required)", needs: "the member's log and show have it"},
	"group readmit":          {},
	"group remove":           {lost: "removes the number of partitions for good"},
}
