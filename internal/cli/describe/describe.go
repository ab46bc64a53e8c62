// Package describe has the commands that describe documents: "explain" the fields of a kind,
// and "schema" its JSON Schema.
package describe

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// Commands returns the commands "explain" and "schema".
func Commands(printer *output.Printer) []*cobra.Command {
	return []*cobra.Command{explain(printer), schema(printer)}
}

// field is a field of a kind for the output.
type field struct {
	Field    string   `json:"field"` // with the kind, as job.retry.max
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	Default  string   `json:"default"`
	Values   []string `json:"values"`
	Unit     string   `json:"unit"`
	Min      *float64 `json:"min"`
	Max      *float64 `json:"max"`
	Help     string   `json:"help"`
	Example  string   `json:"example"`
}

func fieldOf(k *document.Kind, f *document.Field) field {
	x := field{
		Field: strings.ToLower(k.Name) + "." + f.Path, Type: string(f.Type), Required: f.Required, Default: f.Default,
		Values: f.Enum, Unit: f.Unit, Help: f.Help, Example: f.Example,
	}
	if x.Values == nil {
		x.Values = []string{}
	}
	if b := f.Bounds; b != nil {
		x.Min, x.Max = &b.Min, &b.Max
	}
	return x
}

func record(k *document.Kind, f *document.Field) output.Record {
	return output.Object(fieldOf(k, f), func() []output.Cell {
		fallback := f.DefaultText()
		if fallback == "none" {
			fallback = ""
		}
		return []output.Cell{{Text: f.Path}, {Text: string(f.Type)}, {Text: fallback}, {Text: f.Values()}, {Text: f.Help}}
	})
}

func explain(p *output.Printer) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "explain KIND[.FIELD]",
		Short: "Describe the fields of job documents and of the other kinds, without a server",
		Long: `Describe a kind of documents, or a field and the fields in it: type, default, values
and meaning. The kinds are ` + kindList() + `. No server is needed.

"wheelwork run explain" explains the state of a run, "wheelwork cron explain" an
expression, and "wheelwork config explain" where a setting comes from.`,
		Example: `  wheelwork explain job
  wheelwork explain job.retry
  wheelwork explain alias --all -o json`,
		Args:              command.Arguments("KIND"),
		ValidArgsFunction: complete,
	}
	cmd.Flags().BoolVar(&all, "all", false, "also the fields inside the listed ones")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, f, err := document.Lookup(args[0])
		if err != nil {
			return command.Usage(cmd, "%s", err)
		}
		path := ""
		var fields []*document.Field
		if f != nil {
			path = f.Path + "."
			fields = append(fields, f)
		}
		for i := range k.Fields {
			x := &k.Fields[i]
			rest, inside := strings.CutPrefix(x.Path, path)
			if inside && (all || !strings.Contains(rest, ".")) {
				fields = append(fields, x)
			}
		}
		if f == nil {
			p.Note("%s", k.Help)
		}
		return p.PrintAll([]string{"field", "type", "default", "values", "meaning"}, output.Each(fields, func(x *document.Field) output.Record { return record(k, x) }))
	}
	return cmd
}

func schema(p *output.Printer) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of documents, for editors and other tools",
		Long: `Print the JSON Schema (draft 7) of a kind of documents, or without KIND that of all
kinds, which the field kind tells apart. The kinds are ` + kindList() + `.
A server has the same schemas at /schemas/KIND.json and /schemas/document.json, and no
token is needed there.`,
		Example: `  wheelwork schema > wheelwork.schema.json
  wheelwork schema calendar`,
		Args:              command.OptionalArgument("KIND"),
		ValidArgsFunction: complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			text := document.Schema
			if len(args) > 0 {
				k, f, err := document.Lookup(args[0])
				if err != nil {
					return command.Usage(cmd, "%s", err)
				}
				if f != nil {
					return command.Usage(cmd, "%q is a field: want a kind, such as %s", args[0], strings.ToLower(k.Name))
				}
				text = k.Schema
			}
			_, err := p.Out.Write(text())
			return err
		},
	}
}

func kindList() string {
	var names []string
	for _, k := range document.Written() {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

// complete completes the name of a kind in the shell, and after it the paths of its fields.
func complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, k := range document.Written() {
		name := strings.ToLower(k.Name)
		names = append(names, name)
		if cmd.Name() == "explain" && strings.HasPrefix(prefix, name+".") {
			for i := range k.Fields {
				names = append(names, name+"."+k.Fields[i].Path)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
