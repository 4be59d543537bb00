package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

const partitions = 256

// total is what was counted of a partition.
type total struct {
	Events int
	Sum    int64
	Offset int64 // where to go on in the file
}

func partitionFile(dir string, partition int) string {
	return filepath.Join(dir, fmt.Sprintf("%03d.log", partition))
}

// writeLog writes the partitions of an event log: a line with an amount for each event.
// It returns the totals.
func writeLog(dir string, events int) (totals [partitions]total, err error) {
	var files [partitions]*bufio.Writer
	for partition := range files {
		f, err := os.Create(partitionFile(dir, partition))
		if err != nil {
			return totals, err
		}
		defer f.Close()
		files[partition] = bufio.NewWriter(f)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range events {
		partition, amount := r.IntN(partitions), r.Int64N(10_000)
		n, err := fmt.Fprintln(files[partition], amount)
		if err != nil {
			return totals, err
		}
		totals[partition].Events++
		totals[partition].Sum += amount
		totals[partition].Offset += int64(n)
	}
	for _, f := range files {
		err = errors.Join(err, f.Flush())
	}
	return totals, err
}

// add counts up to n more events of a partition. It returns io.EOF if there are none.
func (t total) add(dir string, partition, n int) (total, error) {
	f, err := os.Open(partitionFile(dir, partition))
	if err != nil {
		return t, err
	}
	defer f.Close()
	if _, err := f.Seek(t.Offset, io.SeekStart); err != nil {
		return t, err
	}
	lines := bufio.NewScanner(f)
	found := false
	for ; n > 0 && lines.Scan(); n-- {
		var amount int64
		if _, err := fmt.Sscan(lines.Text(), &amount); err != nil {
			return t, err
		}
		found = true
		t.Events++
		t.Sum += amount
		t.Offset += int64(len(lines.Bytes())) + 1
	}
	if !found && lines.Err() == nil {
		return t, io.EOF
	}
	return t, lines.Err()
}
