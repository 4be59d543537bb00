package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const applyText = `Define the jobs of a YAML file, or of a JSON file as export prints it:

  jobs:
  - name: report-acme
    schedule: TZ=Europe/Berlin 30 7 * * MON
    kind: report
    payload: {customer: acme}
    overlap: buffer-one
    timeout: 10m
    except: {dates: [12-24..12-26, 01-01]}
  - name: mail-acme
    after: report-acme
    kind: mail

apply prints each field that differs from what is stored, and then stores the
jobs, one after the other, each after the jobs that it runs after. A job that another
process changes meanwhile is left as it is, with an error; apply can be run again. Jobs of the group that are not in
the file remain, unless --prune removes their definitions.`

func (a *app) applyCommand() *cobra.Command {
	var file string
	var jobs []sched.Definition
	var prune bool
	return a.jobsCommand(spec{
		use: "apply -f FILE", short: "Define the jobs of a file", long: applyText,
		flags: func(flags *pflag.FlagSet) {
			flags.StringVarP(&file, "file", "f", "", "file of the jobs, or - for the standard input (required)")
			flags.BoolVar(&prune, "prune", false, "remove the definitions of the group that are not in the file")
		},
		check: func([]string) (err error) {
			jobs, err = a.readJobs(file)
			return usageIf(err != nil, "apply: %v", err)
		},
	}, func(ctx context.Context, s *sched.Scheduler, _ []string) error {
		return a.apply(ctx, s, jobs, prune)
	})
}

// export prints a file of definitions as apply reads it, or their names.
func (a *app) export(ctx context.Context, s *sched.Scheduler, names []string) error {
	stored, err := definitions(ctx, s)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(stored))
	}
	f := jobFile{Jobs: []sched.Definition{}}
	for _, name := range names {
		d, is := stored[name]
		if !is {
			return fmt.Errorf("export: job %q is not defined", name)
		}
		f.Jobs = append(f.Jobs, content(d))
	}
	switch a.format {
	case formatName:
		return printList(a, "", sequence(f.Jobs))
	case formatLines:
		return a.printLine(f)
	}
	return a.printJSON(f)
}

// content returns a definition without its version.
func content(d sched.Definition) sched.Definition {
	d.Version, d.By, d.At = 0, "", time.Time{}
	return d
}

// definitions returns the definitions of the group by name.
func definitions(ctx context.Context, s *sched.Scheduler) (map[string]sched.Definition, error) {
	all := make(map[string]sched.Definition)
	for d, err := range s.Definitions(ctx) {
		if err != nil {
			return nil, err
		}
		all[d.Name] = d
	}
	return all, nil
}

// changeView is a field of a definition that differs from what is stored.
type changeView struct {
	Change string `json:"change" col:"CHANGE"` // add, change or remove
	Job    string `json:"job" col:"JOB"`
	Field  string `json:"field,omitempty" col:"FIELD"`
	Before string `json:"before,omitempty" col:"BEFORE,short"`
	After  string `json:"after,omitempty" col:"AFTER,short"`
}

func (v changeView) name() string { return v.Job }

// apply stores the jobs that differ from what is stored, and prints how they differ.
func (a *app) apply(ctx context.Context, s *sched.Scheduler, jobs []sched.Definition, prune bool) error {
	stored, err := definitions(ctx, s)
	if err != nil {
		return err
	}
	others := maps.Clone(stored)
	var changes []changeView
	var changed []sched.Definition
	for _, d := range jobs {
		old := stored[d.Name]
		delete(others, d.Name)
		fields, err := differences(old, d)
		if err != nil {
			return err
		}
		if len(fields) > 0 {
			changes = append(changes, fields...)
			d.Version = old.Version
			changed = append(changed, d)
		}
	}
	var removed []sched.Definition
	if prune {
		for _, name := range slices.Sorted(maps.Keys(others)) {
			changes = append(changes, changeView{Change: "remove", Job: name})
			removed = append(removed, others[name])
		}
	}
	if err := printList(a, "CHANGE,JOB,FIELD,BEFORE,AFTER", sequence(changes)); err != nil || a.dry {
		return err
	}
	for i, d := range inOrder(changed, stored) {
		if _, err := s.Define(ctx, d); err != nil {
			return fmt.Errorf("%w; %d of %d jobs were changed before", err, i, len(changed)+len(removed))
		}
	}
	for i, d := range removed {
		if err := s.Undefine(ctx, d.Name, d.Version); err != nil {
			return fmt.Errorf("%w; %d of %d jobs were changed before", err, len(changed)+i, len(changed)+len(removed))
		}
	}
	a.say("defined %s, removed %d, left %d as they are",
		errtext.Count(len(changed), "job", "jobs"), len(removed), len(jobs)-len(changed))
	return nil
}

// inOrder returns the jobs so that each one comes after the jobs that it runs after. In another
// order jobs that change places would run after themselves for a moment, and be refused.
func inOrder(jobs []sched.Definition, stored map[string]sched.Definition) (all []sched.Definition) {
	among := make(map[string]sched.Definition, len(jobs))
	for _, d := range jobs {
		among[d.Name] = d
	}
	seen := make(map[string]bool)
	var take func(name string)
	take = func(name string) {
		if name == "" || seen[name] {
			return
		}
		seen[name] = true
		d, is := among[name]
		if !is {
			d = stored[name]
		}
		take(d.After)
		for _, before := range d.AfterAll {
			take(before)
		}
		if is {
			all = append(all, d)
		}
	}
	for _, d := range jobs {
		take(d.Name)
	}
	return all
}

// differences returns the fields in which a definition differs from the stored one, which has no
// version if it does not exist.
func differences(old, is sched.Definition) (all []changeView, err error) {
	change := "change"
	if old.Version == 0 {
		change = "add"
	}
	before, err := fieldsOf(old)
	if err != nil {
		return nil, err
	}
	after, err := fieldsOf(is)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			all = append(all, changeView{change, is.Name, name, before[name], after[name]})
		}
	}
	return all, nil
}

// fieldsOf returns the fields of a definition as texts. A payload has the order of its keys
// sorted, as YAML has it.
func fieldsOf(d sched.Definition) (map[string]string, error) {
	text, err := json.Marshal(content(d))
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&fields); err != nil {
		return nil, err
	}
	all := make(map[string]string, len(fields))
	for name, value := range fields {
		if is, plain := value.(string); plain && name != "payload" {
			all[name] = is
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		all[name] = string(text)
	}
	return all, nil
}
