package main

import "runtime/debug"

// versionView is what this program was built of.
type versionView struct {
	Version string `json:"version" col:"VERSION"` // of the module
	Commit  string `json:"commit,omitempty" col:"COMMIT"`
	Changed bool   `json:"changed,omitempty" col:"CHANGED"` // since the commit
	Go      string `json:"go" col:"GO VERSION"`
}

// readVersion returns the version of this program.
func readVersion() (v versionView) {
	is, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version, v.Go = is.Main.Version, is.GoVersion
	for _, s := range is.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Changed = s.Value == "true"
		}
	}
	return v
}
