package main

import (
	"bytes"
	"html/template"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The thumbnails stand beside the sheet. The links lead to the pictures.
var sheet = template.Must(template.New("sheet").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Contact sheet</title>
<style>
body { font: 12px sans-serif; background: #eee }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(120px, 1fr)); gap: 12px }
figure { margin: 0; padding: 8px; background: #fff; text-align: center; overflow-wrap: anywhere }
</style>
<h1>{{len .Pictures}} pictures</h1>
<main>
{{- range .Pictures}}
<figure><a href="{{.Link}}"><img src="{{.File}}" alt="{{.ID}}"></a>
<figcaption>{{.ID}}<br>{{.Worker}}{{if gt .Attempt 1}}, attempt {{.Attempt}}{{end}}</figcaption></figure>
{{- end}}
</main>
<h2>{{len .Dead}} dead letters</h2>
<ul>
{{- range .Dead}}
<li>{{.ID}}<ol>{{range .History}}<li>{{.Owner}}: {{.Ending}} {{.Error}}</li>{{end}}</ol></li>
{{- end}}
</ul>
</html>
`))

// picture is an entry of the sheet.
type picture struct {
	thumbnail
	ID   string
	Link template.URL // which is a file's, so it must be marked as safe
}

// writeSheet writes a page with the thumbnails of all pictures below dir, and the dead
// letters. It returns an error if a thumbnail cannot be read.
func writeSheet(path, dir string, r *results) error {
	var pictures []picture
	for id, t := range r.thumbnails {
		file, err := os.Open(filepath.Join(filepath.Dir(path), t.File))
		if err != nil {
			return err
		}
		_, err = png.Decode(file)
		_ = file.Close()
		if err != nil {
			return err
		}
		link := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, id))}
		pictures = append(pictures, picture{t, id, template.URL(link.String())})
	}
	slices.SortFunc(pictures, func(a, b picture) int { return strings.Compare(a.ID, b.ID) })
	var page bytes.Buffer
	if err := sheet.Execute(&page, map[string]any{"Pictures": pictures, "Dead": r.dead}); err != nil {
		return err
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}
