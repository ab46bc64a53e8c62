package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/wheelworkhq/wheelwork/job/naming"
)

// described is the part of the OpenAPI document that tests read.
type described struct {
	OpenAPI    string                          `json:"openapi"`
	Info       struct{ Title, Version string } `json:"info"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		SecuritySchemes map[string]struct{ Type, Scheme string } `json:"securitySchemes"`
		Schemas         map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	OperationID string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Security    *[]any              `json:"security"`
	Responses   map[string]struct{} `json:"responses"`
	Parameters  []struct {
		Name, In string
		Schema   struct {
			Pattern   string
			Format    string
			MaxLength int
		}
	} `json:"parameters"`
}

// openAPI reads the document that a console serves to a client without a token.
func openAPI(t *testing.T, s *site) (text string, d described) {
	t.Helper()
	resp, text := s.do(t, "GET", "/api/v1/openapi.json", nil)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return text, d
}

// TestOpenAPIIsCurrent compares the document with the generated one beside the API; go
// generate copies it here. They differ by the version alone.
func TestOpenAPIIsCurrent(t *testing.T) {
	generated, err := os.ReadFile("../api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(generated, []byte(openAPIVersion)); n != 1 {
		t.Fatalf("the document has the version %d times, want once", n)
	}
	for version, written := range map[string]string{`v1.2.3 "x"`: `"v1.2.3 \"x\""`, "": `"dev"`} {
		c, err := New(Config{Conn: newFake().start(t), Version: version})
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Replace(generated, []byte(openAPIVersion), []byte(`"version": `+written), 1)
		if !bytes.Equal(c.c.assets.openAPI.body, want) {
			t.Errorf("the document of version %q differs from api/v1/openapi.json: run go generate ./console", version)
		}
	}
}

// TestOpenAPIDescribesEveryMethod compares the document with the methods that the gateway
// serves: each has one operation, with the texts and the refusals that clients need.
func TestOpenAPIDescribesEveryMethod(t *testing.T) {
	_, d := openAPI(t, newSite(t, newFake()))
	if d.OpenAPI != "3.1.0" || d.Info.Title != "Wheelwork" || d.Components.SecuritySchemes["token"].Scheme != "bearer" {
		t.Errorf("the document is %s of %s with the schemes %v", d.OpenAPI, d.Info.Title, d.Components.SecuritySchemes)
	}
	variable := regexp.MustCompile(`\{[^}]*\}`)
	shapes := map[string]string{} // a path without the names of its variables
	var got []string
	for path, item := range d.Paths {
		shape := variable.ReplaceAllString(path, "{}")
		if other, ok := shapes[shape]; ok {
			t.Errorf("%s and %s are the same path", path, other)
		}
		shapes[shape] = path
		for verb, op := range item {
			got = append(got, op.OperationID)
			if op.Summary == "" || strings.HasSuffix(op.Summary, ".") {
				t.Errorf("%s %s has the summary %q", verb, path, op.Summary)
			}
			for _, status := range []string{"400", "401", "403", "default"} {
				_, ok := op.Responses[status]
				if public := op.Security != nil; !ok && (!public || status == "400" || status == "default") {
					t.Errorf("%s %s has no answer %s", verb, path, status)
				}
			}
			checkVariables(t, verb, path, op)
		}
	}
	want := []string{"Modules_PushModule", "Events_PublishEvent"} // uploads and events are no methods of the gateway
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(k)
				if proto.HasExtension(m.Options(), annotations.E_Http) {
					want = append(want, string(m.Parent().Name())+"_"+string(m.Name()))
				}
			}
		}
		return true
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the document has the operations\n%v, want\n%v", got, want)
	}
	if e := slices.Sorted(maps.Keys(d.Components.Schemas["Error"].Properties)); !slices.Equal(e, []string{"code", "message", "problems", "reason"}) {
		t.Errorf("an error has the fields %v", e)
	}
}

// checkVariables checks that each variable of a path is a parameter, and that the patterns
// of names are those of job/naming.
func checkVariables(t *testing.T, verb, path string, op operation) {
	t.Helper()
	for _, p := range op.Parameters {
		if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
			t.Errorf("%s %s has no variable %s", verb, path, p.Name)
		}
		if p.Schema.Pattern == "" || p.In != "path" {
			continue
		}
		pattern := regexp.MustCompile(p.Schema.Pattern)
		if p.Schema.Format == "int64" { // the number of a revision is no name
			for text, want := range map[string]bool{"": false, "7": true, "42": true, "a": false, "7a": false, "7/8": false} {
				if pattern.MatchString(text) != want {
					t.Errorf("%s %s: the schema of %s says %v of %q", verb, path, p.Name, !want, text)
				}
			}
			continue
		}
		for _, name := range []string{"", "a", "0", "-a", ".a", "_a", "a-._9Z", "a b", "a/b", "ä", "a\n", strings.Repeat("x", naming.MaxName), strings.Repeat("x", naming.MaxName+1)} {
			if ok := pattern.MatchString(name) && len(name) <= p.Schema.MaxLength; ok != naming.Valid(name) {
				t.Errorf("%s %s: the schema of %s says %v of the name %q", verb, path, p.Name, ok, name)
			}
		}
	}
	if n := strings.Count(path, "{"); n > len(op.Parameters) {
		t.Errorf("%s %s has %d variables and %d parameters", verb, path, n, len(op.Parameters))
	}
}
