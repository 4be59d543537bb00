package load

// An Order asks the program that drives other people's clients for one
// measurement: a line of JSON on its standard input.
type Order struct {
	Client  string `json:"client"`  // which one: see the names below
	Address string `json:"address"` // host:port of its server
	Shape   Shape  `json:"shape"`
}

// An Answer is the line of JSON that it writes for each order.
type Answer struct {
	Result Result `json:"result"`
	Error  string `json:"error,omitempty"`
}

// The clients that can be asked for.
const (
	Redislock = "redislock" // github.com/bsm/redislock
	RowLease  = "rowlease"  // a row in Postgres with a fence counter
)

// PostgresUser owns the database, which asks for no password.
const PostgresUser = "compare"
