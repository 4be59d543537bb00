package main

import (
	"bytes"
	"html/template"
	"os"
	"path/filepath"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

var sheet = template.Must(template.New("").Parse(`<!DOCTYPE html>
<meta charset="utf-8"><title>Thumbnails</title>
<style>
body { font: 14px sans-serif; margin: 2em } td, th { text-align: left; padding: 2px 1em 2px 0; vertical-align: top }
figure { display: inline-block; width: 130px; margin: 4px; font-size: 10px; overflow-wrap: anywhere; vertical-align: top }
</style>
<h1>Thumbnails</h1>
{{range $id, $t := .Thumbnails}}<figure><img src="{{$t.File}}" alt=""><figcaption>{{$id}}<br>{{$t.Worker}}, attempt {{$t.Attempt}}</figcaption></figure>
{{end}}<h1>Dead letters</h1>
<table><tr><th>Item<th>Attempt<th>Worker<th>Ending<th>Error
{{range $id, $d := .Dead}}{{range $d.History}}<tr><td>{{$id}}<td>{{.Number}}<td>{{.Owner}}<td>{{.Ending}}<td>{{.Error}}
{{end}}{{end}}</table>
`))

// writeSheet writes index.html.
func writeSheet(dir string, thumbnails map[string]thumbnail, dead map[string]queue.Info) error {
	var out bytes.Buffer
	if err := sheet.Execute(&out, map[string]any{"Thumbnails": thumbnails, "Dead": dead}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "index.html"), out.Bytes(), 0o644)
}
