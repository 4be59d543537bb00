package sqlguard

import (
	"fmt"
	"strconv"
	"strings"
)

// Dialect is the SQL dialect of a database. The zero value is not valid.
type Dialect int

// The dialects. Every statement works in the named version and in later ones.
const (
	_        Dialect = iota
	Postgres         // 9.5
	MySQL            // 5.7, and MariaDB 10.2
	SQLite           // 3.35
)

var dialects = [...]string{Postgres: "Postgres", MySQL: "MySQL", SQLite: "SQLite"}

func (d Dialect) known() bool { return 0 < d && int(d) < len(dialects) }

// String returns the name of the dialect.
func (d Dialect) String() string {
	if !d.known() {
		return "Dialect(" + strconv.Itoa(int(d)) + ")"
	}
	return dialects[d]
}

func (d Dialect) validate() error {
	if !d.known() {
		return fmt.Errorf("sqlguard: Dialect is %v: set it to Postgres, MySQL (also for MariaDB) or SQLite", d)
	}
	return nil
}

// maxName is the length to which Postgres truncates names. Two longer names could
// become the same.
const maxName = 63

// quote returns the name quoted for a statement. A name may have up to parts
// parts, separated by dots. quote refuses names that need more than plain ASCII.
func (d Dialect) quote(field, name string, parts int) (string, error) {
	mark := `"`
	if d == MySQL {
		mark = "`" // with any sql_mode; double quotes need ANSI_QUOTES
	}
	split := strings.Split(name, ".")
	if len(split) > parts {
		return "", fmt.Errorf("sqlguard: %s %.80q has %d parts, the limit is %d", field, name, len(split), parts)
	}
	for i, part := range split {
		if !plain(part) {
			return "", fmt.Errorf("sqlguard: %s %.80q must have 1 to %[3]d ASCII letters, digits or _, "+
				"and not begin with a digit", field, name, maxName)
		}
		split[i] = mark + part + mark
	}
	return strings.Join(split, "."), nil
}

func plain(name string) bool {
	if name == "" || len(name) > maxName || '0' <= name[0] && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// placeholder returns the placeholder of the nth argument, counted from 1.
func (d Dialect) placeholder(n int) string {
	if d == Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}
