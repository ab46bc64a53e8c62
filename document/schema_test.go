package document

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// compile returns the validator of a schema.
func compile(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// values returns the documents of a source as an editor sees them.
func valuesOf(t *testing.T, source string) []any {
	t.Helper()
	var all []any
	decoder := yaml.NewDecoder(strings.NewReader(source))
	for {
		var n yaml.Node
		if decoder.Decode(&n) != nil {
			break
		}
		plainDates(&n)
		var v any
		if err := n.Decode(&v); err != nil {
			t.Fatalf("%v\n%s", err, source)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		if list, ok := v.([]any); ok {
			all = append(all, list...)
		} else if v != nil {
			all = append(all, v)
		}
	}
	return all
}

// plainDates makes texts of dates, which YAML 1.2 does not have.
func plainDates(n *yaml.Node) {
	if n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		plainDates(child)
	}
}

// TestSchemaAcceptsExamples validates the example of each field, in both spellings, by the
// schema of its kind and by that of all kinds.
func TestSchemaAcceptsExamples(t *testing.T) {
	all := compile(t, Schema())
	for _, k := range Written() {
		one := compile(t, k.Schema())
		for i := range k.Fields {
			f := &k.Fields[i]
			source := example(k, f.Path, f.Example)
			for _, text := range []string{source, strings.ReplaceAll(source, f.Name()+": ", camel(f.Name())+": "), strings.Replace(source, "kind: "+k.Name, "kind: "+strings.ToLower(k.Name), 1)} {
				for _, v := range valuesOf(t, text) {
					if err := one.Validate(v); err != nil {
						t.Errorf("%s.%s: %v\n%s", k.Name, f.Path, err, text)
					}
					if err := all.Validate(v); err != nil {
						t.Errorf("%s.%s, by the schema of all kinds: %v\n%s", k.Name, f.Path, err, text)
					}
				}
			}
		}
	}
}

// TestSchemaRefusesMistakes validates values that the reader refuses: the schema does too.
func TestSchemaRefusesMistakes(t *testing.T) {
	all := compile(t, Schema())
	for _, k := range Written() {
		one := compile(t, k.Schema())
		for i := range k.Fields {
			f := &k.Fields[i]
			wrong := []string{"{nosuch: 1}", "[[1]]"}
			switch f.Type {
			case Whole, Number, Truth:
				wrong = append(wrong, "many")
			case Duration:
				wrong = append(wrong, "soon", "30", "-1s")
			}
			if len(f.Enum) > 0 && f.Type == Text {
				wrong = append(wrong, "nosuch")
			}
			if f.Type == Map { // it takes any name
				wrong = []string{"[[1]]", "text", "{a: [1]}"}
			}
			if f.Bounds != nil {
				wrong = append(wrong, plain(f.Bounds.Min-1))
			}
			for _, value := range wrong {
				source := example(k, f.Path, value)
				if _, err := Parse(strings.NewReader(source), Options{}); err == nil {
					t.Errorf("%s.%s: the reader accepts\n%s", k.Name, f.Path, source)
				}
				for _, v := range valuesOf(t, source) {
					if one.Validate(v) == nil {
						t.Errorf("%s.%s: the schema accepts\n%s", k.Name, f.Path, source)
					}
					if all.Validate(v) == nil {
						t.Errorf("%s.%s: the schema of all kinds accepts\n%s", k.Name, f.Path, source)
					}
				}
			}
		}
		for _, f := range k.Children("") {
			if !f.Required {
				continue
			}
			without := regexp.MustCompile(`(?m)^`+f.Name()+`: .*\n`).ReplaceAllString("kind: "+k.Name+"\n"+k.Sample(), "")
			without = strings.Replace(without, "kind: "+k.Name+"\nkind: ", "kind: ", 1)
			if _, err := Parse(strings.NewReader(without), Options{}); err == nil {
				t.Errorf("%s without %s: the reader accepts\n%s", k.Name, f.Name(), without)
			}
			if one.Validate(valuesOf(t, without)[0]) == nil || all.Validate(valuesOf(t, without)[0]) == nil {
				t.Errorf("%s without %s: a schema accepts\n%s", k.Name, f.Name(), without)
			}
		}
	}
}

// TestSchemaOfPages validates the documents of the pages of docs, which editors would check.
func TestSchemaOfPages(t *testing.T) {
	all := compile(t, Schema())
	n := 0
	for _, page := range []string{"jobs.md", "workflows.md", "executors.md", "alerts.md", "reference/README.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if _, err := Parse(strings.NewReader(block[1]), Options{}); err != nil {
				t.Errorf("%s: %v\n%s", page, err, block[1])
			}
			for _, v := range valuesOf(t, block[1]) {
				n++
				if err := all.Validate(v); err != nil {
					t.Errorf("%s: %v\n%s", page, err, block[1])
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("%d documents", n)
	}
}

// TestAnswersAreDocuments reads the JSON that commands print of a definition, with all fields
// that are empty or that the server sets: it is the same definition, also for the schema.
func TestAnswersAreDocuments(t *testing.T) {
	for _, k := range Kinds() {
		validator := compile(t, k.Schema())
		for i := range k.Fields {
			f := &k.Fields[i]
			if f.Local {
				continue
			}
			documents, err := Parse(strings.NewReader(example(k, f.Path, f.Example)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			spec := documents[0].Spec
			answer := proto.Clone(spec)
			if field := k.descriptor().Fields().ByName("updated_at"); field != nil {
				answer.ProtoReflect().Set(field, protoreflect.ValueOfMessage(timestamppb.Now().ProtoReflect()))
			}
			text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(bytes.NewReader(text), Options{Kind: k})
			if err != nil || !proto.Equal(again[0].Spec, spec) {
				t.Errorf("%s.%s: %v\n%s", k.Name, f.Path, err, text)
			}
			value := valuesOf(t, string(text))[0].(map[string]any)
			value["kind"] = k.Name
			if err := validator.Validate(value); err != nil {
				t.Errorf("%s.%s: %v\n%s", k.Name, f.Path, err, text)
			}
		}
	}
}
