package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// counts are what wc prints of a file, or of many.
type counts struct {
	Lines int64 `json:"lines"`
	Words int64 `json:"words"`
	Bytes int64 `json:"bytes"`
}

func (c counts) plus(d counts) counts {
	return counts{Lines: c.Lines + d.Lines, Words: c.Words + d.Words, Bytes: c.Bytes + d.Bytes}
}

func (c counts) String() string {
	return fmt.Sprintf("%d lines, %d words, %d bytes", c.Lines, c.Words, c.Bytes)
}

// listFiles returns the .go files below root in lexical order, relative to it
// and with slashes: these are the keys that all workers share, so they must not
// depend on where the tree lies.
func listFiles(root string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.Type().IsRegular() || filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	return files, err
}

func countFile(root, file string) (counts, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return counts{}, err
	}
	c := counts{Lines: int64(bytes.Count(text, []byte("\n"))), Bytes: int64(len(text))}
	for range bytes.FieldsSeq(text) {
		c.Words++
	}
	return c, nil
}

// countAll does alone what the workers do together.
func countAll(root string, files []string) (counts, error) {
	var total counts
	for _, file := range files {
		c, err := countFile(root, file)
		if err != nil {
			return counts{}, err
		}
		total = total.plus(c)
	}
	return total, nil
}
