package audit

// Verb is what an operator does. Where claimctl has a command for it, its name is that command.
type Verb struct {
	Name string
	// Programs make the call, too, as part of what they are for. It is recorded only if As names a
	// person: otherwise one busy program would push out what people did.
	Programs bool
}

// The verbs of all packages.
var (
	Release       = Verb{Name: "release"}
	Resize        = Verb{Name: "resize"}
	RaiseEpoch    = Verb{Name: "epoch raise"}
	Restore       = Verb{Name: "restore"}
	RetryWork     = Verb{Name: "work retry", Programs: true}
	ForgetWork    = Verb{Name: "work forget", Programs: true}
	PauseJob      = Verb{Name: "sched pause"}
	ResumeJob     = Verb{Name: "sched resume"}
	CancelJob     = Verb{Name: "sched cancel"}
	ForgetJob     = Verb{Name: "sched forget"}
	ResetJob      = Verb{Name: "sched reset"}
	RunJob        = Verb{Name: "sched run", Programs: true}
	BackfillJob   = Verb{Name: "sched backfill", Programs: true}
	DefineJob     = Verb{Name: "sched apply", Programs: true}
	UndefineJob   = Verb{Name: "sched undefine", Programs: true}
	PauseQueue    = Verb{Name: "queue pause"}
	ResumeQueue   = Verb{Name: "queue resume"}
	Reconfigure   = Verb{Name: "queue reconfigure"}
	Redrive       = Verb{Name: "queue dead redrive", Programs: true}
	RedriveAll    = Verb{Name: "queue dead redrive-all", Programs: true}
	Purge         = Verb{Name: "queue dead purge", Programs: true}
	CancelItem    = Verb{Name: "queue cancel", Programs: true}
	SetPriority   = Verb{Name: "queue priority", Programs: true}
	EvictMember   = Verb{Name: "group evict"}
	ReadmitMember = Verb{Name: "group readmit"}
	RemoveGroup   = Verb{Name: "group remove"}
)
