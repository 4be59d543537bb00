package history

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The files of a failure.
const (
	historyFile = "history.jsonl" // for Read
	eventsFile  = "events.txt"
	pictureFile = "picture.html"
)

// Verify checks the history like Check. If a rule is broken it fails the test and
// writes three files, whose directory the message names (see [Checks.Dir]): the
// history in the format of [Read], the records and violations as text, and a
// picture of the keys concerned for a browser. It does not end the test, and may
// be called more than once.
func (h *History) Verify(tb testing.TB, opts Checks) {
	tb.Helper()
	vs := h.check(opts)
	if len(vs) == 0 {
		return
	}
	dir, err := reportDir(tb, opts.Dir)
	if err == nil {
		err = h.report(dir, vs, opts)
	}
	if err != nil {
		tb.Errorf("%v\nwriting its files failed: %v", vs, err)
		return
	}
	tb.Errorf("%v\nsee %s: %s, %s, %s", vs, dir, historyFile, eventsFile, pictureFile)
}

// reportDir returns a directory that outlives the test.
func reportDir(tb testing.TB, dir string) (string, error) {
	tb.Helper()
	if dir != "" {
		return dir, os.MkdirAll(dir, 0o755)
	}
	// Without the flag the artifact directory is removed with the test.
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return tb.ArtifactDir(), nil
	}
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == '*' || r == os.PathSeparator {
			return '_'
		}
		return r
	}, tb.Name())
	return os.MkdirTemp("", "history-"+name[:min(len(name), 80)]+"-*") //nolint:usetesting // it is to outlive the test
}

func (h *History) report(dir string, vs Violations, opts Checks) error {
	return errors.Join(
		writeFile(dir, historyFile, func(w io.Writer) error {
			_, err := h.WriteTo(w)
			return err
		}),
		writeFile(dir, eventsFile, func(w io.Writer) error { return h.writeEvents(w, vs) }),
		writeFile(dir, pictureFile, func(w io.Writer) error { return h.draw(w, vs, opts) }),
	)
}

func writeFile(dir, name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (h *History) writeEvents(w io.Writer, vs Violations) error {
	buf := bufio.NewWriter(w)
	for _, e := range h.snapshot() {
		fmt.Fprintln(buf, e)
	}
	for _, v := range vs { // all, where the failure shows the first ones
		fmt.Fprintf(buf, "\n%v\n", v)
	}
	return buf.Flush()
}

// drawSteps limits the search for a picture, which keeps every order that it has
// tried.
const drawSteps = 200_000

// draw writes porcupine's picture of the keys that the violations are about.
func (h *History) draw(w io.Writer, vs Violations, opts Checks) error {
	p := newTimeline(h.snapshot())
	var byKey [][]porcupine.Operation
	for _, k := range p.keys {
		if !slices.ContainsFunc(vs, func(v *Violation) bool { return v.Key == k.key }) {
			continue
		}
		if ops := k.operations(p, cmp.Or(opts.Grace, defaultGrace)); len(ops) > 0 {
			byKey = append(byKey, ops)
		}
	}
	assignRows(byKey)
	m := model(nil)
	limited := model(newSearch(drawSteps))
	limited.Partition = func([]porcupine.Operation) [][]porcupine.Operation { return byKey }
	_, info := porcupine.CheckOperationsVerbose(limited, nil, 0)
	info.AddAnnotations(p.annotations())
	m.DescribeOperationMetadata = func(about any) string { return fmt.Sprint(about) }
	return porcupine.Visualize(m, info, w)
}

// assignRows gives each operation its row of the picture. A process has as many
// rows as it made calls at the same time, since a row shows one call at a time.
func assignRows(byKey [][]porcupine.Operation) {
	var all []*porcupine.Operation
	for _, ops := range byKey {
		for i := range ops {
			all = append(all, &ops[i])
		}
	}
	slices.SortFunc(all, func(a, b *porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	rows := map[string][]int{}
	var busy []int64 // each row, until when
	for _, op := range all {
		in := op.Input.(step)
		op.Metadata = fmt.Sprintf("key %q, process %q, records %v", in.key, in.process, in.seqs)
		whose := in.process
		if in.name == nameLapse {
			whose = "" // nobody's, and long
		}
		at := slices.IndexFunc(rows[whose], func(row int) bool { return busy[row] < op.Call })
		if at < 0 {
			at = len(rows[whose])
			rows[whose] = append(rows[whose], len(busy))
			busy = append(busy, 0)
		}
		op.ClientId = rows[whose][at]
		busy[op.ClientId] = op.Return
	}
}

// annotations returns the records that the model does not contain but readers need.
func (p *timeline) annotations() []porcupine.Annotation {
	var all []porcupine.Annotation
	for _, e := range p.events {
		switch e.Kind {
		case didTake, didEnded, didDied, didLog:
			text := e.Text
			if e.Kind != didLog {
				text = string(e.Kind)
			}
			all = append(all, porcupine.Annotation{
				Tag: cmp.Or(e.Process, e.Key, "log"), Start: 2 * e.Seq, Description: text,
				Details: e.At.Format(time.RFC3339Nano) + " " + e.String(),
			})
		}
	}
	return all
}
