package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
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

var (
	jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$`)
	// ambiguous are the words that some programs read as texts, and others as true or false.
	ambiguous = regexp.MustCompile(`^(?i:yes|no|on|off)$`)
)

// printYAML prints what JSON has of a value as a document of YAML. Texts keep their quotes, so that
// no program reads them as something else.
func printYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil { // JSON is YAML in another style
		return err
	}
	inBlocks(&n)
	if text, err = yaml.Marshal(&n); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", text)
	return err
}

func inBlocks(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for i, is := range n.Content {
		if inBlocks(is); n.Kind == yaml.MappingNode && i%2 == 0 && len(is.Value) > 1 && !ambiguous.MatchString(is.Value) {
			is.Style = 0 // quotes are left where YAML needs them
		}
	}
}

// valueOf turns a node of YAML into what package json encodes. Numbers keep their digits. What
// JSON cannot write in the same way is an error, and so are aliases, which can repeat values
// without end.
func valueOf(n *yaml.Node) (any, error) {
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
		return valueOf(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return nil, fmt.Errorf("line %d: aliases are not supported: write the value again", n.Line)
	case n.Kind == yaml.ScalarNode:
		return scalar(n)
	case n.Kind == yaml.SequenceNode && tag == "!!seq":
		all := make([]any, len(n.Content))
		for i, item := range n.Content {
			var err error
			if all[i], err = valueOf(item); err != nil {
				return nil, err
			}
		}
		return all, nil
	case n.Kind == yaml.MappingNode && tag == "!!map":
		return mapping(n)
	default:
		return nil, fmt.Errorf("line %d: the tag %.40q is not supported", n.Line, tag)
	}
}

func mapping(n *yaml.Node) (any, error) {
	all := make(map[string]any)
	for pair := range slices.Chunk(n.Content, 2) {
		key := pair[0]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return nil, fmt.Errorf("line %d: a key is not a text", key.Line)
		}
		if _, twice := all[key.Value]; twice {
			return nil, fmt.Errorf("line %d: key %.80q already set", key.Line, key.Value)
		}
		is, err := valueOf(pair[1])
		if err != nil {
			return nil, err
		}
		all[key.Value] = is
	}
	return all, nil
}

func scalar(n *yaml.Node) (any, error) {
	plain := n.Style&^yaml.FlowStyle == 0 // neither quoted nor tagged
	switch tag := n.ShortTag(); {
	case plain && jsonNumber.MatchString(n.Value):
		return json.Number(n.Value), nil
	case tag == "!!null":
		return nil, nil
	case tag == "!!bool":
		return n.Value[0] == 't' || n.Value[0] == 'T', nil
	case tag == "!!int" || tag == "!!float":
		return nil, fmt.Errorf("line %d: the number %.80s cannot be stored; write it as in JSON, or as a text in quotes", n.Line, n.Value)
	case plain && ambiguous.MatchString(n.Value):
		return nil, fmt.Errorf("line %d: %s has more than one meaning in YAML; write true or false, or %q", n.Line, n.Value, n.Value)
	case tag == "!!str" || tag == "!!timestamp" || tag == "!!merge":
		return n.Value, nil
	default:
		return nil, fmt.Errorf("line %d: the tag %.40q is not supported", n.Line, tag)
	}
}
