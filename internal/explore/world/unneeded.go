package world

// Reasons of conditions that no scope needs.
const (
	itsOwn    = "nobody else has a key of that name, and another condition of the request shows that it is there"
	oneLease  = "the value names the attempt, and an attempt has one lease; but a copy of etcd's keys, as of etcdctl make-mirror, has none"
	orEither  = "nobody else has a key of that name, so the revision and the lease show the same"
	repeated  = "only a restore repeats a revision"
	inTurn    = "the first in line is handed the key or takes it, and nobody before that; but with Prefer, or within a client, others do"
	laterCall = "the lease shows the same, unless a later call of the client has the slot, which no search reached"
	laterNote = "it spares the note of another client that has the key since, which no search reached"
	freed     = "a release without it frees the key although callers wait, and they notice that; with it the release hands the key over"
)

// shows are the scopes that find those conditions missing that others miss late or never.
var shows = map[string][]Condition{
	"exclusive: one tries twice": {
		{"Move", "own/k mod equal"}, {"release (deleting)", "own/k mod equal"}, {"release (leaving)", "own/k mod equal"},
	},
	"slots: one tries twice": {
		{"Confirm", "own/k#slot-… value equal"},
		{"Move", "own/k#slot-… mod equal"},
		{"release (deleting)", "own/k#slot-… mod equal"},
		{"release (leaving)", "own/k#slot-… mod equal"},
	},
	"exclusive: one waits twice, with notes": {{"Move", "own/k lease not_equal"}},
	"slots: one waits twice, with notes":     {{"Move", "own/k#slot-… lease not_equal"}},
	"exclusive: one waits twice, with notes, and gives up": {
		{"ClearAway", "own/k lease not_equal"}, {"Confirm", "own/k lease not_equal"}, {"Leave", "own/k value equal"},
	},
	"slots: one waits twice, with notes, and gives up": {
		{"ClearAway", "own/k#slot-… lease not_equal"}, {"Confirm", "own/k#slot-… lease not_equal"},
	},
	"exclusive: one waits twice, and ends with an operation": {{"release (settling)", "own/k mod equal"}},
	"slots: one waits twice, and ends with an operation": {
		{"release (settling)", "own/k#slot-… mod equal"},
		{"release (settling)", "record create greater"},
		{"release (settling)", "record create less"},
	},
	"shared: one waits twice, and ends with an operation": {
		{"release (settling)", "own/k#shared-… range value equal"},
		{"release (settling)", "record mod equal"},
	},
	"slots: 2 wait, with notes and writes": {
		{"ClearAway", "note/k#slot-… lease equal"}, {"ClearAway", "note/k#slot-… mod equal"},
	},
	"slots: 2 wait with notes, and callers give up": {{"Move", "note/k#slot-… lease equal"}},
	"slots: 2 wait, and end with an operation": {
		{"release (leaving)", "record create greater"}, {"release (leaving)", "record create less"},
	},
	"slots: 3 wait, a request sent twice":      {{"Join", "session/… create equal"}},
	"slots: 3 wait, their number changes":      {{"hand-over", "record value equal"}},
	"slots: 3 wait, and end with an operation": {{"hand-over", "record create less"}},
	"exclusive: 2 try, etcd restored":          {{"Move", "own/k lease equal"}},
	"slots: 2 try, etcd restored": {
		{"Move", "own/k#slot-… lease equal"}, {"release (leaving)", "own/k#slot-… lease equal"},
	},
	"exclusive: 2 try, and write, etcd restored": {
		{"Commit", "own/k lease equal"}, {"Commit", "own/k mod equal"},
	},
	"exclusive and shared":                            {{"Clear", "own/k mod equal"}},
	"exclusive and two shared, which try and give up": {{"Undo", "record mod equal"}},
	"work: 2 at most once, one of each fault":         {{"Bury", "work/k mod equal"}},
}

// Unneeded says why conditions are there that no scope needs.
var Unneeded = map[Condition]string{
	{"Advance", "own/k#shared-… create equal"}: "its place is required, too, and what puts the claim deletes the place",

	{"Bury", "own/k create equal"}: "a claim of the work changes its record, which is required, too; but a claim without work does not",

	{"ClearAway", "note/k#shared-… lease equal"}:    itsOwn,
	{"ClearAway", "note/k#shared-… mod equal"}:      itsOwn,
	{"ClearAway", "own/k#shared-… lease not_equal"}: itsOwn,

	{"Commit", "own/k#shared-… lease equal"}: orEither,
	{"Commit", "own/k#shared-… mod equal"}:   orEither,

	{"Confirm", "note/k#shared-… lease equal"}:    itsOwn,
	{"Confirm", "own/k lease equal"}:              oneLease,
	{"Confirm", "own/k#shared-… lease equal"}:     oneLease,
	{"Confirm", "own/k#shared-… lease not_equal"}: itsOwn,
	{"Confirm", "own/k#shared-… value equal"}:     orEither,
	{"Confirm", "own/k#slot-… lease equal"}:       oneLease,

	{"Drop", "own/k#slot-… lease equal"}: repeated,
	{"Drop", "own/k#slot-… mod equal"}:   laterCall,

	{"Leave", "own/k lease equal"}:          oneLease,
	{"Leave", "own/k#shared-… lease equal"}: oneLease,
	{"Leave", "own/k#shared-… value equal"}: orEither,
	{"Leave", "own/k#slot-… lease equal"}:   repeated,
	{"Leave", "own/k#slot-… mod equal"}:     laterCall,

	{"Move", "note/k lease equal"}:             laterNote,
	{"Move", "note/k#shared-… lease equal"}:    itsOwn,
	{"Move", "own/k#shared-… lease equal"}:     orEither,
	{"Move", "own/k#shared-… lease not_equal"}: itsOwn,
	{"Move", "own/k#shared-… mod equal"}:       orEither,

	{"Take", "own/k mod equal"}: "the lease shows the same, unless another caller of the client has the key since",

	{"Undo", "note/k#shared-… lease equal"}:    itsOwn,
	{"Undo", "own/k lease equal"}:              oneLease,
	{"Undo", "own/k#shared-… lease equal"}:     oneLease,
	{"Undo", "own/k#shared-… lease not_equal"}: itsOwn,
	{"Undo", "own/k#shared-… value equal"}:     orEither,
	{"Undo", "own/k#slot-… lease equal"}:       oneLease,

	{"hand-over", "own/k lease equal"}:        repeated,
	{"hand-over", "own/k mod equal"}:          inTurn,
	{"hand-over", "own/k#slot-… lease equal"}: repeated,
	{"hand-over", "own/k#slot-… mod equal"}:   inTurn,

	{"hand-over", "record create greater"}: "the hand-over requires the value of the record, too",

	{"release (deleting)", "own/k lease equal"}:          repeated,
	{"release (deleting)", "own/k#shared-… lease equal"}: orEither,
	{"release (deleting)", "own/k#shared-… mod equal"}:   orEither,
	{"release (deleting)", "own/k#slot-… lease equal"}:   repeated,

	{"release (leaving)", "own/k#shared-… lease equal"}: orEither,
	{"release (leaving)", "own/k#shared-… mod equal"}:   orEither,
	{"release (leaving)", "wait/… mod equal"}:           freed,
	{"release (leaving)", "wait/… range create equal"}:  freed,

	{"release (settling)", "own/k lease equal"}:          repeated,
	{"release (settling)", "own/k#shared-… lease equal"}: orEither,
	{"release (settling)", "own/k#shared-… mod equal"}:   orEither,
	{"release (settling)", "own/k#slot-… lease equal"}:   repeated,
	{"release (settling)", "wait/… range create equal"}:  freed,
}
