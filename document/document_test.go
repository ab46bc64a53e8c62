package document

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

var update = flag.Bool("update", false, "write the pages of the reference")

// TestTableAgreesWithMessages compares the table of each kind with the message that it is sent
// as: each field of the message is in the table, with the right type, or is one that only the
// server sets; and the table has no other.
func TestTableAgreesWithMessages(t *testing.T) {
	for _, k := range Kinds() {
		seen := map[string]bool{}
		var walk func(path string, d protoreflect.MessageDescriptor)
		walk = func(path string, d protoreflect.MessageDescriptor) {
			for i := range d.Fields().Len() {
				field := d.Fields().Get(i)
				at := join(path, string(field.Name()))
				f, reason := k.Field(at), k.ServerFields[at]
				seen[at] = true
				switch {
				case f == nil && reason == "":
					t.Errorf("%s: the field %s of the message is not in the table, and not among the fields that only the server sets", k.Name, at)
				case f != nil && reason != "":
					t.Errorf("%s: %s is in the table and among the fields that only the server sets", k.Name, at)
				case f != nil:
					if want := typesOf(field); !slices.Contains(want, f.Type) {
						t.Errorf("%s: %s is of type %q, want one of %q", k.Name, at, f.Type, want)
					}
					if f.Type == Object || f.Type == Objects {
						walk(at, field.Message())
					}
				}
			}
		}
		walk("", k.descriptor())
		for i := range k.Fields {
			if f := &k.Fields[i]; !seen[f.Path] && !f.Local {
				t.Errorf("%s: %s is in the table, and not in the message", k.Name, f.Path)
			}
		}
		for at := range k.ServerFields {
			if !seen[at] {
				t.Errorf("%s: the server cannot set %s: the message has no such field", k.Name, at)
			}
		}
	}
}

// typesOf returns the types that a field of a message may have in a table.
func typesOf(field protoreflect.FieldDescriptor) []Type {
	switch {
	case field.IsMap():
		return []Type{Map}
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		return []Type{Objects}
	case field.IsList():
		return []Type{Texts}
	}
	return map[protoreflect.Kind][]Type{
		protoreflect.StringKind:  {Text, Duration, Instant},
		protoreflect.BytesKind:   {Bytes},
		protoreflect.BoolKind:    {Truth},
		protoreflect.Int32Kind:   {Whole},
		protoreflect.Int64Kind:   {Whole},
		protoreflect.Uint64Kind:  {Whole},
		protoreflect.DoubleKind:  {Number},
		protoreflect.MessageKind: {Object},
	}[field.Kind()]
}

// TestTableIsComplete checks what pages and help need of every field.
func TestTableIsComplete(t *testing.T) {
	for _, k := range Kinds() {
		last := map[string]bool{"": true}
		for i := range k.Fields {
			f := &k.Fields[i]
			if !strings.HasSuffix(f.Help, ".") || strings.Contains(f.Help, "\n") {
				t.Errorf("%s.%s: help %q: want one sentence with a full stop", k.Name, f.Path, f.Help)
			}
			if f.Example == "" {
				t.Errorf("%s.%s has no example", k.Name, f.Path)
			}
			if !last[f.parent()] {
				t.Errorf("%s.%s is before the object that has it, or in none", k.Name, f.Path)
			}
			last[f.Path] = f.Type == Object || f.Type == Objects
			if len(f.Enum) > 0 && f.Default != "" && !slices.Contains(f.Enum, f.Default) {
				t.Errorf("%s.%s: the default %q is not among the values %q", k.Name, f.Path, f.Default, f.Enum)
			}
		}
	}
}

// example returns a document with one field at a path set to a value, and with what the
// objects around it require.
func example(k *Kind, path, value string) string {
	f := k.Field(path)
	for f.parent() != "" {
		up := k.Field(f.parent())
		object := "{" + f.Name() + ": " + value
		for _, other := range k.Children(up.Path) {
			if other.Required && other != f {
				object += ", " + other.Name() + ": " + other.Example
			}
		}
		if value = object + "}"; up.Type == Objects {
			value = "[" + value + "]"
		}
		f = up
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kind: %s\n%s: %s\n", k.Name, f.Name(), value)
	for _, other := range k.Children("") {
		if other.Required && other != f {
			fmt.Fprintf(&b, "%s: %s\n", other.Name(), other.Example)
		}
	}
	return b.String()
}

// TestExamples parses the example of each field, marshals the document and parses it again.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "orders.csv"), []byte("a,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		for i := range k.Fields {
			f := &k.Fields[i]
			source := example(k, f.Path, f.Example)
			documents, err := Parse(strings.NewReader(source), Options{Dir: dir})
			if err != nil || len(documents) != 1 {
				t.Errorf("%s.%s: %v\n%s", k.Name, f.Path, err, source)
				continue
			}
			d := documents[0]
			if d.Kind != k || d.Name == "" || proto.Size(d.Spec) == 0 {
				t.Errorf("%s.%s: read %+v", k.Name, f.Path, d)
			}
			canonical, err := Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(bytes.NewReader(canonical), Options{})
			if err != nil {
				t.Errorf("%s.%s: the canonical form: %v\n%s", k.Name, f.Path, err, canonical)
				continue
			}
			if third, err := Marshal(again[0]); err != nil || !bytes.Equal(third, canonical) {
				t.Errorf("%s.%s: marshalled again: %v\n%s\nwant\n%s", k.Name, f.Path, err, third, canonical)
			}
			// Only a default and what the canonical form leaves out may differ.
			if f.Type != Object && f.Path != "etag" && !proto.Equal(again[0].Spec, d.Spec) && f.Default == "" {
				t.Errorf("%s.%s: the canonical form reads as %v, want %v", k.Name, f.Path, again[0].Spec, d.Spec)
			}
		}
	}
}

// TestMistakes reads documents with mistakes, and checks the position and the text of each.
func TestMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		source string
		want   []string
	}{
		"unknown field":       {"name: a\nscedule: {every: 1s}\n", []string{`f.yaml:2:1: unknown field "scedule": did you mean "schedule"?`}},
		"unknown inner field": {"name: a\nretry:\n  tries: 3\n", []string{`f.yaml:3:3: unknown field "retry.tries": want one of backoff, first, jitter, limit, max`}},
		"unknown in an element": {
			"name: a\nworkflow:\n  nodes:\n    - name: x\n      job: y\n      aftr: [z]\n",
			[]string{`f.yaml:6:7: unknown field "workflow.nodes[0].aftr": did you mean "after"?`},
		},
		"unknown kind":      {"kind: Calender\nname: a\n", []string{`f.yaml:1:7: kind: there is no kind "Calender": did you mean "Calendar"?`}},
		"all at once":       {"name: a\npriority: 11\nretry: {backoff: fixd, max: many}\ntimeout: 30\n", []string{`f.yaml:2:11: priority is 11, it must be -10 to 10`, `f.yaml:3:18: retry.backoff: "fixd" is not a value of this field: did you mean "fixed"?`, `f.yaml:3:29: retry.max: want a whole number, found "many"`, `f.yaml:4:10: timeout: "30" is not a duration`}},
		"many documents":    {"name: a\n---\nkind: Calendar\ndates: [2027-01-01]\n---\nkind: Alias\nmodule: m\nname: prod\n", []string{"f.yaml:3:1: name is missing", "f.yaml:6:1: version is missing"}},
		"a missing element": {"name: a\nworkflow: {nodes: [{name: x}]}\n", []string{"f.yaml:2:20: workflow.nodes[0].job is missing"}},
		"JSON":              {"{\"name\": \"a\",\n \"retry\": {\"max\": 200}}", []string{"f.yaml:2:19: retry.max is 200, it must be 0 to 100"}},
		"not JSON":          {"{\"name\":\"a\"}\n{\"name\":", []string{"f.yaml:2:9: document 2 is not JSON: line 2: unexpected EOF"}},
		"not YAML":          {"name: a\n---\nname: [\n", []string{"document 2 is not YAML: "}},
		"set twice":         {"name: a\nmax_runs: 1\n", []string{`unknown field "max_runs"`}},
		"two spellings":     {"name: a\nschedule: {max_runs: 1, maxRuns: 2}\n", []string{"f.yaml:2:25: schedule.maxRuns is set twice"}},
		"no mapping":        {"just text\n", []string{"f.yaml:1:1: want a document with fields, found \"just text\""}},
		"kind twice":        {"kind: Job\nname: a\nkind: App\n", []string{"f.yaml:3:1: kind is set twice"}},
		"both inputs":       {"name: a\ninput: x\ninputFile: f.txt\n", []string{"f.yaml:3:12: inputFile and input are both set: use one"}},
		"merge key":         {"name: a\n<<: {app: b}\n", []string{`unknown field "<<": merge keys are not supported`}},
		"a time":            {"name: a\nschedule: {at: tomorrow}\n", []string{`f.yaml:2:16: schedule.at: "tomorrow" is not a time`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f.txt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Parse(strings.NewReader(tt.source), Options{File: "f.yaml", Dir: dir})
			problems, ok := err.(Problems)
			if !ok || len(problems) != len(tt.want) {
				t.Fatalf("%v, want %d mistakes", err, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("%s, want it to say %s", problems[i], want)
				}
			}
		})
	}
}

// TestAliases reads a source whose aliases repeat themselves: a little is right, and a source
// that would fill the memory is refused.
func TestAliases(t *testing.T) {
	source := func(n int) string {
		return "- name: a\n  handler: {module: m@1}\n  workflow: {nodes: &n [{name: x, job: y, after: &a [" + strings.Repeat("z,", n) + "]}" + strings.Repeat(",{name: x, job: y, after: *a}", n) + "]}\n" +
			strings.Repeat("- {name: b, workflow: {nodes: *n}}\n", n)
	}
	if d, err := Parse(strings.NewReader(source(10)), Options{}); err != nil || len(d) != 11 {
		t.Errorf("%d documents, %v", len(d), err)
	}
	if _, err := Parse(strings.NewReader(source(200)), Options{}); err == nil || !strings.Contains(err.Error(), "aliases repeat more than 1000000 values") {
		t.Errorf("%v", err)
	}
}

// TestCanonical checks the order of documents and fields, and the omission of defaults.
func TestCanonical(t *testing.T) {
	source := `
retry: {limit: 1m, backoff: exponential, max: 2}
overlap: {policy: parallel}
schedule: {daily: {}, zone: UTC}
labels: {b: 2, a: 1}
app: default
name: zebra
handler: {name: main, module: totals@1}
---
kind: calendar
name: holidays
dates: [2027-01-01]
---
name: ant
input: "two\nlines\n"
handler: {module: totals@prod}
`
	documents, err := Parse(strings.NewReader(source), Options{})
	if err != nil {
		t.Fatal(err)
	}
	job := documents[0].Spec.(*apiv1.Job)
	job.Revision, job.UpdatedAt, job.Digest, job.Etag = 7, timestamppb.Now(), "sha256:abc", "00c0ffee"
	got, err := Marshal(documents...)
	if err != nil {
		t.Fatal(err)
	}
	const want = `kind: Calendar
name: holidays
dates:
  - "2027-01-01"
---
name: ant
handler:
  module: totals@prod
input: |
  two
  lines
---
name: zebra
labels:
  a: "1"
  b: "2"
handler:
  module: totals@1 # sha256:abc
schedule:
  daily: {}
retry:
  max: 2
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if at := documents[0].FieldAt("retry.max"); at.Line != 2 || at.Column != 42 {
		t.Errorf("retry.max is at %s", at)
	}
	if at := documents[1].FieldAt("dates[0]"); at.Line != 12 || at.Column != 9 {
		t.Errorf("dates[0] is at %s", at)
	}
	if at := documents[0].FieldAt("retry.jitter"); at.Line != 2 || at.Column != 1 {
		t.Errorf("the object of retry.jitter is at %s", at)
	}
}

// asLibrary writes a document with package yaml alone.
func asLibrary(t *testing.T, d *Document) string {
	t.Helper()
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := cmp.Or(encoder.Encode(d.node()), encoder.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWriter compares the writer with package yaml, for texts that need quotes or lines of
// their own, in fields, lists, maps and objects in lists.
func TestWriter(t *testing.T) {
	texts := []string{
		"plain", "a@1", "a/b.c-d_e", "yes", "No", "null", "true", "y", "~", "", " ", " a", "a ", "1", "1.5", "0x1f", "12:30", "2027-01-01", "a: b", "a:b", "a #b", "#a", "-", "- a", "[a]", "{a}", "*a", "&a", "!a", "%a", "@a", "`a",
		"two\nlines", "two\nlines\n", "two\n\nlines\n\n", "\nfirst", " first\nsecond", "a\n  b\n", "trailing \nspace", "tab\there", "\u0007", "\u2028", "ü", "日本", "'", "\"", "a'b", "\\", strings.Repeat("long ", 60), strings.Repeat("a", 127), strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 2000), "0 */5 * * * *", "0 0  * *", "*/5 * * * *", "0 *", "1 * ?", "30s", "1h30m", "1.5s", ".5s", "1m.", "..s", `{"region":"eu"}`, `["it's"]`, "{", "[ ", `{"a": 1} # b`, `{"ü":1}`, "e1", "1e5", "1_000", "Inf", "nan", ".inf", "<<", "=", "?", "? a", "|", ">", ",", "a,b",
	}
	for _, text := range texts {
		for _, key := range []string{"team", text} {
			job := &apiv1.Job{
				Name: "a", Description: text, Input: text, Labels: map[string]string{key: text, "other": "x"},
				Handler:  &apiv1.Handler{Module: "m@1", Args: []string{"plain", text, "last"}, Http: &apiv1.HTTPCall{Url: text, Headers: map[string]string{key: text}}},
				Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "x", Job: "y"}, {Name: text, Job: "y", After: []string{text}}, {}, {Name: "z", Input: text, Optional: true}}},
				Schedule: &apiv1.Schedule{Daily: &apiv1.Daily{}}, Digest: "sha256:abc", Priority: -3, Retry: &apiv1.Retry{Jitter: 0.5},
			}
			d := Of(jobKind, job)
			got, err := Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			if want := asLibrary(t, d); string(got) != want {
				t.Fatalf("%q with the key %q: got\n%s\nwant\n%s", text, key, got, want)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for text, want := range map[string]string{
		"job":                    "Job",
		"Job.retry.max":          "Job retry.max",
		"job.schedule.maxRuns":   "Job schedule.max_runs",
		"job.inputFile":          "Job inputFile",
		"alias.canary.percent":   "Alias canary.percent",
		"jb":                     `there is no kind "jb": did you mean "Job"?`,
		"job.rety":               `Job has no field "rety": did you mean "retry"?`,
		"job.retry.tries":        `Job.retry has no field "tries": want one of backoff, first, jitter, limit, max`,
		"job.workflow.nodes.job": "Job workflow.nodes.job",
	} {
		k, f, err := Lookup(text)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case f != nil:
			got = k.Name + " " + f.Path
		default:
			got = k.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestReference compares the pages of the reference with the tables.
// `go test ./document -run TestReference -update` writes them.
func TestReference(t *testing.T) {
	dir := filepath.Join("..", "docs", "reference")
	for _, k := range Written() {
		file := filepath.Join(dir, strings.ToLower(k.Name)+".md")
		if *update {
			if err := os.WriteFile(file, k.Reference(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, k.Reference()) {
			t.Errorf("%s is not that of the table (%v): go test ./document -run TestReference -update writes it", file, err)
		}
		if _, err := Parse(strings.NewReader(k.Sample()), Options{}); err != nil {
			t.Errorf("the sample of %s: %v", k.Name, err)
		}
	}
}

// FuzzParse reads any bytes. What it accepts has a canonical form that reads back as itself.
func FuzzParse(f *testing.F) {
	for _, k := range Written() {
		f.Add([]byte(k.Sample()))
	}
	f.Add([]byte(`{"kind":"Alias","module":"m","name":"p","version":1} [{"name":"a","input":"\ud83d\ude00"}]`))
	f.Add([]byte("a: &x [*x]\n"))
	f.Fuzz(func(t *testing.T, source []byte) {
		if bytes.Contains(source, []byte("ile")) {
			return // inputFile would read files of this machine
		}
		documents, err := Parse(bytes.NewReader(source), Options{AnyValue: true})
		if err != nil {
			return
		}
		canonical, err := Marshal(documents...)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			if one, err := Marshal(d); err != nil || string(one) != asLibrary(t, d) {
				t.Errorf("%v: wrote\n%s\nwant\n%s", err, one, asLibrary(t, d))
			}
		}
		again, err := Parse(bytes.NewReader(canonical), Options{AnyValue: true})
		if err != nil || len(again) != len(documents) {
			t.Fatalf("%v, %d documents of %d\n%s", err, len(again), len(documents), canonical)
		}
		if third, err := Marshal(again...); err != nil || !bytes.Equal(third, canonical) {
			t.Errorf("%v\n%s\nwant\n%s", err, third, canonical)
		}
	})
}
