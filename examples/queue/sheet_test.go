package main

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A picture with a thumbnail that is missing or broken is no entry of a contact sheet.
func TestSheetNeedsThumbnails(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "a.1.png"))
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(file, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.1.png"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(file string, ok bool) {
		t.Helper()
		path := filepath.Join(dir, "index.html")
		err := writeSheet(path, "/pictures", &results{thumbnails: map[string]thumbnail{"<a b>.png": {File: file}}})
		if (err == nil) != ok {
			t.Errorf("sheet of %s: %v", file, err)
		}
	}
	f("missing.1.png", false)
	f("broken.1.png", false)
	f("a.1.png", true)
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	want := `<a href="file:///pictures/%3Ca%20b%3E.png"><img src="a.1.png" alt="&lt;a b&gt;.png"></a>`
	if !strings.Contains(string(page), want) {
		t.Errorf("the sheet lacks %s:\n%s", want, page)
	}
}
