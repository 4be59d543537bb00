package serve

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/middleware"
)

// openAPI returns the parsed document that is served.
func openAPI(t *testing.T) map[string]any {
	t.Helper()
	text, err := documentJSON()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil || v["openapi"] != "3.1.0" {
		t.Fatalf("%v: %v", v["openapi"], err)
	}
	return v
}

// at follows keys into a document.
func at(v any, keys ...string) any {
	for _, key := range keys {
		v, _ = v.(map[string]any)
		v = v.(map[string]any)[key]
	}
	return v
}

func sortedKeys(v any) []string {
	m, _ := v.(map[string]any)
	return slices.Sorted(maps.Keys(m))
}

// The document has the routes of the server and no others, with the parameters of their paths.
func TestDocumentHasTheRoutes(t *testing.T) {
	doc := openAPI(t)
	var want, got []string
	for _, rt := range routes {
		want = append(want, rt.method+" "+rt.path)
	}
	for path, item := range at(doc, "paths").(map[string]any) {
		for _, method := range sortedKeys(item) {
			if method == "parameters" {
				continue
			}
			got = append(got, strings.ToUpper(method)+" "+path)
			if at(item, method, "responses", "default", "$ref") != "#/components/responses/problem" {
				t.Errorf("%s %s has no problems", method, path)
			}
		}
		parameters, _ := json.Marshal(at(item, "parameters"))
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			if !strings.Contains(string(parameters), "#/components/parameters/"+name[1]+`"`) {
				t.Errorf("%s does not describe %s", path, name[1])
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%q, the server\n%q", got, want)
	}
}

// What the document refers to is in it, and everything in it is referred to.
func TestDocumentReferences(t *testing.T) {
	doc := openAPI(t)
	text, _ := documentJSON()
	used := map[string]bool{}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		used[ref[1]] = true
		if at(doc, strings.Split(ref[1], "/")...) == nil {
			t.Errorf("there is no %s", ref[1])
		}
	}
	for _, kind := range []string{"parameters", "requestBodies", "responses", "schemas"} {
		for _, name := range sortedKeys(at(doc, "components", kind)) {
			if !used["components/"+kind+"/"+name] {
				t.Errorf("%s %s is not used", kind, name)
			}
		}
	}
	if len(used) < 25 {
		t.Errorf("only %d references were found", len(used))
	}
}

// The schemas have the fields of the bodies.
func TestDocumentHasTheFields(t *testing.T) {
	schemas := at(openAPI(t), "components", "schemas")
	types := map[string]any{
		"ClaimRequest": claimRequest{},
		"Lease":        leaseView{},
		"Claim":        claimView{},
		"Event":        watchEvent{},
		"Writes":       writes{},
		"Put":          put{},
		"Written":      txnView{},
		"ItemRequest":  itemRequest{},
		"Item":         itemView{},
		"ItemsRequest": itemsRequest{},
		"Deliveries":   deliveriesView{},
		"Delivery":     deliveryView{},
		"FailRequest":  failRequest{},
		"Outcome":      outcomeView{},
		"Health":       healthView{},
		"Problem":      middleware.Problem{IdempotencyKey: ""},

		"SnoozeRequest": snoozeRequest{},
	}
	if got, want := sortedKeys(schemas), slices.Sorted(maps.Keys(types)); !slices.Equal(got, want) {
		t.Errorf("the document has the schemas %q, the server %q", got, want)
	}
	for name, v := range types {
		want := fields(reflect.TypeOf(v))
		want = slices.DeleteFunc(want, func(f string) bool { return f == "idempotencyKey" }) // of middleware.Once alone
		got := sortedKeys(at(schemas, name, "properties"))
		if at(schemas, name, "allOf") != nil {
			got = append(got, sortedKeys(at(schemas, "Lease", "properties"))...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the document has %q, the server %q", name, got, want)
		}
	}
}

// fields returns the names of a struct's fields in JSON, sorted.
func fields(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fields(f.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// The document explains each kind of problem, with its status, and no other.
func TestDocumentHasTheProblems(t *testing.T) {
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]int{} // by their names in net/http
	for status := 400; status < 600; status++ {
		statuses[strings.ReplaceAll(http.StatusText(status), " ", "")] = status
	}
	var want []string
	of := map[string]string{} // the beginning of the description of each
	for _, k := range regexp.MustCompile(`= kind\{"([a-z-]+)", http\.Status(\w+),`).FindAllStringSubmatch(string(source), -1) {
		typ := kind{code: k[1]}.typ()
		want = append(want, typ)
		of[typ] = strconv.Itoa(statuses[k[2]]) + ". "
	}
	var got []string
	described := at(openAPI(t), "components", "schemas", "Problem", "properties", "type", "oneOf").([]any)
	for _, one := range described {
		typ := at(one, "const").(string)
		got = append(got, typ)
		if text := at(one, "description").(string); !strings.HasPrefix(text, of[typ]) {
			t.Errorf("%s: the document says %q, the server %q", typ, text, of[typ])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) < 18 {
		t.Errorf("the document has\n%q, the server\n%q", got, want)
	}
}
