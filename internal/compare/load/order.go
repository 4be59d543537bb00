package load

// An Order asks the program that drives other people's clients for one measurement.
// It is the program's argument, as JSON. The program prints a Result as JSON.
type Order struct {
	Client  string `json:"client"`  // which one: see the names below
	Address string `json:"address"` // host:port of its server
	Shape   Shape  `json:"shape"`

	Slots int `json:"slots,omitempty"` // of a semaphore: how many may hold it

	// Of queues.
	Each     int  `json:"each,omitempty"`     // jobs that are enqueued, and waited for, with each step
	Handlers int  `json:"handlers,omitempty"` // jobs that are handled at the same time; 0 means that jobs are enqueued only
	Defaults bool `json:"defaults,omitempty"` // it looks for jobs as often as by default
}

// The clients that can be asked for.
const (
	Redislock = "redislock" // github.com/bsm/redislock
	RowLease  = "rowlease"  // a row in Postgres with a fence counter
	Semaphore = "semaphore" // a sorted set in Redis
	Asynq     = "asynq"     // github.com/hibiken/asynq, a queue in Redis
	River     = "river"     // github.com/riverqueue/river, a queue in Postgres
)

// PostgresUser owns the database, which asks for no password.
const PostgresUser = "compare"
