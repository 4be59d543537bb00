package keyspace

import "time"

// TimeText returns a time as values have it.
func TimeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Time returns what TimeText has made a text of; zero if the text is no time.
func Time(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
