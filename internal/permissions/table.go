// Package permissions has the table of docs/permissions.md, for the tests of what it
// says.
package permissions

import (
	"os"
	"strings"
)

// Data stands for the keys of the user's own in a row.
const Data = "your own data"

// Table reads the document. It returns the permissions (R, W or RW) that each feature
// needs, by the subtree of the prefix, or by Data.
func Table(document string) (map[string]map[string]string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	rows := make(map[string]map[string]string)
	var columns []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		if columns == nil {
			columns = cells
			continue
		}
		needs := make(map[string]string)
		for i, permission := range cells[1:6] {
			if permission != "" {
				needs[columns[i+1]] = permission
			}
		}
		for other := range strings.SplitSeq(cells[6], ", ") {
			if i := strings.LastIndexByte(other, ' '); i > 0 {
				needs[other[:i]] = other[i+1:]
			}
		}
		rows[cells[0]] = needs
	}
	return rows, nil
}
