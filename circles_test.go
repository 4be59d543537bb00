package claims_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
)

// maxCircle is how many files of a package may refer to each other in a circle. A reader of
// one of them has to know them all.
const maxCircle = 12

// largerCircles has the packages whose circle is larger than it may be. A number only falls:
// whoever makes a circle smaller lowers it here.
var largerCircles = map[string]int{
	"./internal/simulation": 22,
}

func TestFilesFormNoLargeCircle(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the numbers are those of the files for Linux")
	}
	circles := map[string][]string{}
	for _, p := range checkedPackages(t) {
		circles[p.path] = largestCircle(references(p))
	}
	for _, fault := range circleFaults(circles, largerCircles) {
		t.Error(fault)
	}
}

// references returns the files that each file of a package refers to.
func references(p checked) map[string]map[string]bool {
	to := map[string]map[string]bool{}
	for name, object := range p.uses {
		if object.Pkg() != p.types {
			continue
		}
		from, target := p.file(name.Pos()), p.file(object.Pos())
		if to[from] == nil {
			to[from] = map[string]bool{}
		}
		to[from][target] = true
	}
	return to
}

// largestCircle returns the most files that all reach each other, sorted. One file is no
// circle.
func largestCircle(to map[string]map[string]bool) []string {
	reached := map[string]map[string]bool{}
	for from := range to {
		seen := map[string]bool{}
		for next := []string{from}; len(next) > 0; {
			file := next[0]
			next = next[1:]
			for other := range to[file] {
				if !seen[other] {
					seen[other] = true
					next = append(next, other)
				}
			}
		}
		reached[from] = seen
	}
	var largest []string
	for _, file := range slices.Sorted(maps.Keys(reached)) {
		var circle []string
		for other := range reached[file] {
			if reached[other][file] {
				circle = append(circle, other)
			}
		}
		if len(circle) > max(1, len(largest)) {
			largest = circle
		}
	}
	slices.Sort(largest)
	return largest
}

// circleFaults compares the largest circle of each package with the numbers of larger ones
// that are known.
func circleFaults(circles map[string][]string, known map[string]int) []string {
	var faults []string
	for _, path := range slices.Sorted(maps.Keys(circles)) {
		circle := circles[path]
		got, may := len(circle), max(maxCircle, known[path])
		if got > may {
			faults = append(faults, fmt.Sprintf("%s: %d files form a circle, %d may: %v", path, got, may, circle))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(known)) {
		got := len(circles[path])
		switch {
		case got <= maxCircle:
			faults = append(faults, fmt.Sprintf("%s: %d files form a circle, as any package's may: remove its number", path, got))
		case got < known[path]:
			faults = append(faults, fmt.Sprintf("%s: %d files form a circle, fewer than %d: lower its number", path, got, known[path]))
		}
	}
	return faults
}

func TestLargestCircle(t *testing.T) {
	sources := exampleSources{module + "/a": {
		"one.go":   "package a; type one struct { next *two }; func (o one) last() four { return 0 }",
		"two.go":   "package a; type two struct { n int }; func (t two) up() { _ = three }",
		"three.go": "package a; var three = func(o one) four { return o.last() }",
		"four.go":  "package a; type four int; func (f four) own() four { return f }",
		"five.go":  "package a; func five(t two) int { return t.n }",
	}}
	got := largestCircle(references(sources.check(t, "./a")))
	if want := []string{"one.go", "three.go", "two.go"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	delete(sources[module+"/a"], "two.go")
	sources[module+"/a"]["two.go"] = "package a; type two struct { n int }"
	if got := largestCircle(references(sources.check(t, "./a"))); got != nil {
		t.Errorf("got %q without a circle", got)
	}
}

func TestCirclesOnlyShrink(t *testing.T) {
	files := func(n int) []string { return make([]string, n) }
	tests := []struct {
		name   string
		circle int
		known  int
		faults int
	}{
		{"OK", maxCircle, 0, 0},
		{"OK known", maxCircle + 3, maxCircle + 3, 0},
		{"too large", maxCircle + 1, 0, 1},
		{"larger than known", maxCircle + 4, maxCircle + 3, 1},
		{"smaller than known", maxCircle + 2, maxCircle + 3, 1},
		{"known, and small", maxCircle, maxCircle + 3, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			known := map[string]int{}
			if tt.known > 0 {
				known["./a"] = tt.known
			}
			got := circleFaults(map[string][]string{"./a": files(tt.circle)}, known)
			if len(got) != tt.faults {
				t.Errorf("got %q, want %d faults", got, tt.faults)
			}
		})
	}
	if got := circleFaults(nil, map[string]int{"./gone": 20}); len(got) != 1 {
		t.Errorf("got %q for a package that is gone, want one fault", got)
	}
}
