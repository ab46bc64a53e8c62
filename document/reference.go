package document

import (
	"fmt"
	"math"
	"strings"
)

// Values describes the values of a field in a few words; "" says nothing beyond the type.
func (f *Field) Values() string {
	var words []string
	if len(f.Enum) > 0 {
		words = append(words, strings.Join(f.Enum, ", "))
	}
	if b := f.Bounds; b != nil {
		switch {
		case b.Max < 1<<53 && b.Max != math.MaxInt32: // otherwise it is the bound of the type
			words = append(words, plain(b.Min)+" to "+plain(b.Max))
		default:
			words = append(words, plain(b.Min)+" or more")
		}
	}
	if f.Unit != "" {
		words = append(words, f.Unit)
	}
	return strings.Join(words, " ")
}

// DefaultText describes what holds without the field.
func (f *Field) DefaultText() string {
	switch {
	case f.Required:
		return "needed"
	case f.Default != "":
		return f.Default
	}
	return "none"
}

// Reference returns the page of the reference in Markdown.
func (k *Kind) Reference() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", k.Name, k.Help)
	fmt.Fprintf(&b, "`wheelwork explain %[1]s` prints these fields, and `wheelwork schema %[1]s` their JSON Schema ([documents](README.md)).\n\n", strings.ToLower(k.Name))
	b.WriteString("```yaml\n" + k.Sample() + "```\n\n| field | type | default | meaning | example |\n|---|---|---|---|---|\n")
	for i := range k.Fields {
		f := &k.Fields[i]
		help := f.Help
		if v := f.Values(); v != "" {
			help += " Values: " + v + "."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` |\n", f.Path, f.Type, code(f), cell(help), cell(f.Example))
	}
	return []byte(b.String())
}

// code returns the default of a field as a cell.
func code(f *Field) string {
	if f.Default == "" {
		return f.DefaultText()
	}
	return "`" + cell(f.Default) + "`"
}

// cell escapes a text for a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// Sample returns a document with the required fields of the kind and those in its examples.
func (k *Kind) Sample() string {
	var b strings.Builder
	if k.Name != DefaultKind {
		fmt.Fprintf(&b, "kind: %s\n", k.Name)
	}
	for _, f := range k.Children("") {
		if f.Required || k.shows(f.Name()) {
			fmt.Fprintf(&b, "%s: %s\n", f.Path, f.Example)
		}
	}
	return b.String()
}

// shows reports whether the sample of the kind has a field that is not required.
func (k *Kind) shows(name string) bool {
	return map[string]bool{"handler": true, "schedule": true, "retry": true, "dates": true, "yearly": true, "canary": true, "grants": true, "rate": true, "description": k.Name == "App"}[name]
}
