package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A section is what a worker does to a plain file while it believes to own the
// key of it: lines that no fence guards, each after Claim.Check. They show how
// rare overlaps are with a claim alone, and that they do occur.
//
//	begin <fence> <worker> <n> <time>
//	write <fence> <worker> <n> <time>
//	end   <fence> <worker> <n> <time>
type section struct {
	file   *os.File
	fence  int64
	worker string
	n      string
}

const sectionDir = "files"

// openSection opens the file of a key, which has one line per append.
func openSection(dir, key, worker, n string, fence int64) (*section, error) {
	dir = filepath.Join(dir, sectionDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, key), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &section{file: file, fence: fence, worker: worker, n: n}, nil
}

func (s *section) line(word string) error {
	_, err := fmt.Fprintf(s.file, "%s %d %s %s %d\n", word, s.fence, s.worker, s.n, time.Now().UnixNano())
	return err
}

// close ends the section, whether or not the claim still stands: that is when
// the work really stopped.
func (s *section) close() error { return errors.Join(s.line("end"), s.file.Close()) }

// sectionLine is a line as it is read back.
type sectionLine struct {
	word   string
	fence  int64
	worker string
	n      string
	at     int64
}

func readSections(dir string) (map[string][]sectionLine, error) {
	dir = filepath.Join(dir, sectionDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := make(map[string][]sectionLine, len(entries))
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if files[e.Name()], err = parseSection(string(data)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return files, nil
}

func parseSection(data string) ([]sectionLine, error) {
	var lines []sectionLine
	for text := range strings.Lines(data) {
		var l sectionLine
		if _, err := fmt.Sscanf(text, "%s %d %s %s %d\n", &l.word, &l.fence, &l.worker, &l.n, &l.at); err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", len(lines)+1, text, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// unfenced counts what workers did in sections, which no fence guards.
type unfenced struct {
	sections int
	overlaps int // sections under way when another owner's began
	late     int // lines written after that
}

// add counts the sections of one file.
func (u *unfenced) add(lines []sectionLine, deaths map[string]time.Time) {
	for _, l := range lines {
		if l.word == "begin" {
			u.sections++
		}
	}
	overlaps, late := countOverlaps(lines, deaths)
	u.overlaps += overlaps
	u.late += late
}

// countOverlaps returns how many sections were still under way when one of
// another fence began, and how many lines were written by an owner after a newer
// one had begun, though Check had passed. A worker's sections end with it at the
// latest.
func countOverlaps(lines []sectionLine, deaths map[string]time.Time) (overlaps, late int) {
	type underWay struct {
		sectionLine
		counted bool
	}
	open := map[string]*underWay{}
	newest := int64(0)
	for _, l := range lines {
		id := l.worker + " " + l.n
		for other, o := range open {
			if death, dead := deaths[o.worker]; dead && death.UnixNano() < l.at {
				delete(open, other)
			}
		}
		switch l.word {
		case "begin":
			for _, o := range open {
				if o.fence != l.fence && !o.counted {
					o.counted = true
					overlaps++
				}
			}
			open[id] = &underWay{sectionLine: l}
		case "end":
			delete(open, id)
			continue // says that the work has stopped, changes nothing
		}
		if l.fence < newest {
			late++
		}
		newest = max(newest, l.fence)
	}
	return overlaps, late
}
