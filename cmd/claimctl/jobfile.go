package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
	"go.yaml.in/yaml/v3"
)

// jobFile is a file of job definitions.
type jobFile struct {
	Jobs []sched.Definition `json:"jobs"`
}

// readJobs reads and checks a file of definitions.
func (a *app) readJobs(name string) (jobs []sched.Definition, err error) {
	var text []byte
	switch name {
	case "":
		return nil, errors.New("-f FILE is missing")
	case "-":
		text, err = io.ReadAll(a.in)
	default:
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	f, err := parseJobs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(err.Error()), " "))
	}
	if len(f.Jobs) == 0 {
		return nil, fmt.Errorf("%s has no jobs; want a list \"jobs\"", name)
	}
	seen := make(map[string]bool)
	for _, d := range f.Jobs {
		err := d.Validate()
		if err == nil {
			_, err = d.ParseSchedule(ical.ParseText)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if seen[d.Name] {
			return nil, fmt.Errorf("%s: job %q is there twice", name, d.Name)
		}
		seen[d.Name] = true
	}
	return f.Jobs, nil
}

// parseJobs parses a file in YAML or JSON. It has one document.
func parseJobs(text []byte) (f jobFile, err error) {
	if !json.Valid(text) { // YAML has other rules for control characters
		if text, err = toJSON(text); err != nil {
			return f, err
		}
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	err = strict.Decode(&f)
	return f, err
}

// toJSON returns a YAML document as JSON. One without values is an object without fields.
func toJSON(text []byte) ([]byte, error) {
	document := any(struct{}{})
	found := false
	for all := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var n yaml.Node
		err := all.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		is, err := valueOf(&n)
		switch {
		case err != nil:
			return nil, err
		case is == nil: // no more than comments
		case found:
			return nil, errors.New("the file has more than one YAML document; want one, with a list \"jobs\"")
		default:
			document, found = is, true
		}
	}
	return json.Marshal(document)
}
