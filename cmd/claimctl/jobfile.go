package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// jobFile is a file of job definitions.
type jobFile struct {
	Jobs []sched.Definition `json:"jobs"`
}

// documentMark begins or ends a YAML document. Neither mark can be part of a value.
var documentMark = regexp.MustCompile(`(?m)^(?:---|\.\.\.)(?:[ \t]|\r?$)`)

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
	var f jobFile
	documents := 0
	for _, document := range documentMark.Split(string(text), -1) {
		var is any
		err := yaml.Unmarshal([]byte(document), &is)
		if err == nil && is == nil {
			continue // no more than comments
		}
		if documents++; documents > 1 {
			return nil, fmt.Errorf("%s has more than one YAML document; want one, with a list \"jobs\"", name)
		}
		if f, err = parseJobs([]byte(document)); err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.Join(strings.Fields(err.Error()), " "))
		}
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

// parseJobs parses one YAML document. The numbers of payloads keep their text.
func parseJobs(document []byte) (f jobFile, err error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return f, err
	}
	is, err := decodeNumbers(text)
	if err != nil {
		return f, err
	}
	var exact exactly
	_ = yamlv2.Unmarshal(document, &exact) // a number that is not found keeps its value, but not its text
	if text, err = json.Marshal(withNumbers(is, exact)); err != nil {
		return f, err
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return f, strict.Decode(&f)
}

// decodeNumbers decodes JSON. Its numbers keep their text.
func decodeNumbers(text []byte) (is any, err error) {
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	return is, numbers.Decode(&is)
}

// exactly is a value of YAML: a json.Number if it is a number as JSON writes it, a
// []exactly, a map[any]exactly, or something else.
type exactly struct{ is any }

var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$`)

// UnmarshalYAML leaves out what it cannot decode: the library takes a quoted "~" for null.
func (v *exactly) UnmarshalYAML(unmarshal func(any) error) error {
	_ = unmarshal(&v.is)
	switch v.is.(type) {
	case int, int64, uint64, float64:
		var text string
		if err := unmarshal(&text); err == nil && jsonNumber.MatchString(text) {
			v.is = json.Number(text)
		}
	case []any:
		var all []exactly
		_ = unmarshal(&all)
		v.is = all
	case map[any]any:
		var all map[any]exactly
		_ = unmarshal(&all)
		v.is = all
	}
	return nil
}

// withNumbers replaces the numbers of a value by the texts that they have in YAML.
func withNumbers(is any, exact exactly) any {
	switch is := is.(type) {
	case json.Number:
		if number, same := exact.is.(json.Number); same {
			return number
		}
	case []any:
		if all, same := exact.is.([]exactly); same && len(all) == len(is) {
			for i := range is {
				is[i] = withNumbers(is[i], all[i])
			}
		}
	case map[string]any:
		all, _ := exact.is.(map[any]exactly)
		for key, value := range all {
			if name := fmt.Sprint(key); is[name] != nil {
				is[name] = withNumbers(is[name], value)
			}
		}
	}
	return is
}

// yaml returns the file as YAML. Numbers keep their text: they are written as marked texts
// first, because YAML libraries would round them.
func (f jobFile) yaml() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	is, err := decodeNumbers(text)
	if err != nil {
		return nil, err
	}
	mark := "number"
	for bytes.Contains(text, []byte(mark)) {
		mark += "n"
	}
	if is, err = marked(is, mark); err != nil {
		return nil, err
	}
	if text, err = yamlv2.Marshal(is); err != nil {
		return nil, err
	}
	text = regexp.MustCompile(mark+`([-+.0-9eE]+)`).ReplaceAll(text, []byte("$1"))
	return bytes.ReplaceAll(text, []byte(mark+"merge"), []byte(`"<<"`)), nil
}

// marked replaces the numbers of a value by marked texts, and so keys that YAML takes for a
// merge.
func marked(is any, mark string) (_ any, err error) {
	switch is := is.(type) {
	case json.Number:
		if _, err := strconv.ParseFloat(string(is), 64); err != nil {
			return nil, fmt.Errorf("the number %s is too large for YAML; put it into a string, or use -o json", is)
		}
		return mark + string(is), nil
	case []any:
		for i := range is {
			if is[i], err = marked(is[i], mark); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		all := make(map[string]any, len(is))
		for key, value := range is {
			if key == "<<" {
				key = mark + "merge"
			}
			if all[key], err = marked(value, mark); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return is, nil
}
