package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// counts are what wc prints for a file, or for many.
type counts struct{ Lines, Words, Bytes int64 }

func (c counts) plus(d counts) counts {
	return counts{c.Lines + d.Lines, c.Words + d.Words, c.Bytes + d.Bytes}
}

func (c counts) String() string {
	return fmt.Sprintf("%d lines, %d words, %d bytes", c.Lines, c.Words, c.Bytes)
}

// listFiles returns the .go files below root in lexical order, relative to root and
// with slashes. They are the keys that all workers share.
func listFiles(root string) (files []string, err error) {
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Ext(name) == ".go" {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

func countFile(root, file string) (counts, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	c := counts{Lines: int64(bytes.Count(text, []byte("\n"))), Bytes: int64(len(text))}
	for range bytes.FieldsSeq(text) {
		c.Words++
	}
	return c, err
}

// countTree is the plain count that the workers' is compared with.
func countTree(root string, files []string) (total counts, err error) {
	for _, file := range files {
		c, err := countFile(root, file)
		if err != nil {
			return counts{}, err
		}
		total = total.plus(c)
	}
	return total, nil
}
