package document_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestDefaultsAreThoseOfTheServer checks that the server compares definitions as canonical
// forms do: for each field of a job, a document with its default, and one with its example.
func TestDefaultsAreThoseOfTheServer(t *testing.T) {
	kind, err := document.Find("Job")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(path, value string) *apiv1.Job {
		t.Helper()
		var b strings.Builder
		depth, at := 0, ""
		for step := range strings.SplitSeq(path, ".") {
			at = strings.TrimPrefix(at+"."+step, ".")
			fmt.Fprintf(&b, "\n%s%s:", strings.Repeat("  ", depth), step)
			depth++
			if kind.Field(at).Type == document.Objects && at != path {
				fmt.Fprintf(&b, "\n%s-", strings.Repeat("  ", depth))
				depth++
			}
		}
		all, err := document.Parse(strings.NewReader(b.String()+" "+value+"\n"), document.Options{Kind: kind, AnyValue: true})
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, b.String())
		}
		return all[0].Spec.(*apiv1.Job)
	}
	defaults := 0
	for i := range kind.Fields {
		f := &kind.Fields[i]
		if f.Path == "name" || f.Path == "app" || f.Local || f.Type == document.Object || f.Type == document.Objects {
			continue
		}
		for _, value := range []string{f.Default, f.Example} {
			if value == "" || f.Type == document.Texts && value == f.Default {
				continue // canonical forms have lists always
			}
			def := parse(f.Path, value)
			without := proto.CloneOf(def)
			clearField(without.ProtoReflect(), strings.Split(f.Path, "."))
			left := document.Diff(document.Of(kind, without), document.Of(kind, def))
			if same := proto.Equal(job.WithoutDefaults(def), job.WithoutDefaults(without)); same != (len(left) == 0) && f.Path != "paused" && f.Path != "etag" { // forms without the two are compared apart
				t.Errorf("%s: %s: the server sees the same definition: %t, and the canonical forms differ in %v", f.Path, value, same, left)
			}
			if value == f.Default {
				defaults++
			}
		}
	}
	if defaults < 20 {
		t.Errorf("%d defaults were compared", defaults)
	}
}

// clearField clears the field at a path, in each element of a list.
func clearField(m protoreflect.Message, path []string) {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case len(path) == 1:
		m.Clear(field)
	case field.IsList():
		for i := range m.Get(field).List().Len() {
			clearField(m.Get(field).List().Get(i).Message(), path[1:])
		}
	case m.Has(field):
		clearField(m.Mutable(field).Message(), path[1:])
	}
}
