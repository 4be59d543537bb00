package tick

import "slices"

// Heir is the value of now/heir/: a client asks the owner to hand the ownership over.
type Heir struct {
	Version  int      `json:"v"`
	Instance string   `json:"instance"`
	Term     int64    `json:"term,string"` // the revision of the ownership that is asked for
	Jobs     []string `json:"jobs"`        // in code, sorted
	Kinds    []string `json:"kinds,omitempty"`
}

// Inherits reports whether an owner hands over: the client has all of the owner's jobs in code and
// kinds, and a job that the owner does not have. So the ownership never returns for what a client has.
func (h Heir) Inherits(term int64, jobs, kinds []string) bool {
	return h.Term == term && h.Instance != "" && includes(h.Jobs, jobs) && !includes(jobs, h.Jobs) && includes(h.Kinds, kinds)
}

// includes reports whether all of some names are in sorted ones.
func includes(sorted, some []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool {
		_, found := slices.BinarySearch(sorted, name)
		return !found
	})
}
