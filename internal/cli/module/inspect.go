package module

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// inspection is the output of `module inspect`.
type inspection struct {
	Module       string            `json:"module"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Refused      string            `json:"refused"` // reason for which the upload verifier would refuse it
	Kind         string            `json:"kind"`
	Handlers     []string          `json:"handlers"`
	ABI          []string          `json:"abi"`
	Imports      []string          `json:"imports"`
	Exports      []string          `json:"exports"`
	MinMemory    int64             `json:"min_memory_bytes"`
	MaxMemory    int64             `json:"max_memory_bytes"` // 0: no limit of its own
	Capabilities json.RawMessage   `json:"capabilities"`     // requested by its manifest
	Limits       map[string]any    `json:"limits"`           // set by its manifest, by handler
	Sections     []modules.Section `json:"sections"`
	Signers      []string          `json:"signers"`
}

func (c *commands) inspect() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE.wasm|NAME@VERSION",
		Short: "Show what is in a module",
		Long: `Show the sections, imports, exports, handlers, capabilities, limits, size, digest
and signatures of a module: of a file here, or of a version on the server. The command
inspects it on this machine. If the upload verifier would refuse the module, the
command shows what it can read, and the exit code is 1.`,
		Example: `  wheelwork module inspect totals.wasm
  wheelwork module inspect totals@1 -o json`,
		Args: command.Arguments("FILE.wasm|NAME@VERSION"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := c.inspectModule(cmd, args[0])
		if err != nil {
			return err
		}
		if err := c.PrintOne(inspectionColumns(), output.Object(in, in.row)); err != nil {
			return err
		}
		if in.Refused != "" {
			return command.Fail("refused", "%s", in.Refused)
		}
		return nil
	}
	return cmd
}

// inspectModule reads a file or a version on the server.
func (c *commands) inspectModule(cmd *cobra.Command, what string) (*inspection, error) {
	if !isVersion(what) {
		code, err := readModule(what)
		if err != nil {
			return nil, err
		}
		return inspectCode(what, code)
	}
	var in *inspection
	return in, c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
		m, code, err := c.fetchVersion(ctx, client, what)
		if err == nil {
			in, err = inspectCode(what, code)
		}
		if err == nil {
			in.Signers = append(in.Signers, signersOf(m)...)
		}
		return err
	})(cmd, nil)
}

func inspectCode(name string, code []byte) (*inspection, error) {
	in := &inspection{Module: name, Digest: modules.Digest(code), Size: int64(len(code)), Handlers: []string{}, ABI: []string{}, Imports: []string{}, Exports: []string{}, Signers: []string{}}
	info, err := wasm.Inspect(code)
	if err != nil {
		in.Refused = err.Error()
	} else {
		in.Kind, in.Handlers, in.ABI, in.Imports, in.Exports = string(info.Kind), info.Handlers, info.ABI, info.Imports, info.Exports
		in.MinMemory, in.MaxMemory = info.MinMemoryBytes, info.MaxMemoryBytes
	}
	if in.Sections, err = modules.Sections(code); err != nil && in.Refused == "" {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if in.Sections == nil { // not a core module: the refusal says what it is
		in.Sections = []modules.Section{}
	}
	in.readManifest(code)
	return in, nil
}

// readManifest extracts the most important fields of the manifest.
func (in *inspection) readManifest(code []byte) {
	in.Capabilities, in.Limits = json.RawMessage("{}"), map[string]any{}
	section, ok := modules.Custom(code, abi.ManifestSection)
	if !ok {
		return
	}
	var manifest struct {
		Capabilities json.RawMessage  `json:"capabilities"`
		Limits       map[string]any   `json:"limits"`
		Handlers     []map[string]any `json:"handlers"`
	}
	if json.Unmarshal(section, &manifest) != nil {
		return // the verifier reports the error
	}
	if len(manifest.Capabilities) > 0 {
		in.Capabilities = manifest.Capabilities
	}
	if len(manifest.Limits) > 0 {
		in.Limits["module"] = manifest.Limits
	}
	for _, h := range manifest.Handlers {
		name := fmt.Sprint(h["name"])
		delete(h, "name")
		if len(h) > 0 {
			in.Limits[name] = h
		}
	}
}

func inspectionColumns() []string {
	return []string{"module", "digest", "size", "refused", "kind", "handlers", "memory", "abi", "imports", "exports", "capabilities", "limits", "signed by", "sections"}
}

func (in *inspection) row() []output.Cell {
	memory := output.Bytes(in.MinMemory)
	if in.MaxMemory > 0 {
		memory += " to " + output.Bytes(in.MaxMemory)
	}
	if in.Kind == "" {
		memory = ""
	}
	var sections []string
	for _, s := range in.Sections {
		name := s.Name
		if s.Custom {
			name = "custom " + name
		}
		sections = append(sections, output.Pad(name, 28)+" "+output.Bytes(s.Bytes))
	}
	return []output.Cell{
		{Text: in.Module},
		{Text: in.Digest},
		{Text: fmt.Sprintf("%s (%d bytes)", output.Bytes(in.Size), in.Size)},
		{Text: in.Refused, Tint: output.Red},
		{Text: in.Kind},
		{Text: strings.Join(in.Handlers, "\n")},
		{Text: memory},
		{Text: strings.Join(in.ABI, "\n")},
		{Text: strings.Join(in.Imports, "\n")},
		{Text: strings.Join(in.Exports, "\n")},
		{Text: unlessEmpty(string(in.Capabilities))},
		{Text: unlessEmpty(jsonText(in.Limits))},
		{Text: strings.Join(in.Signers, "\n")},
		{Text: strings.Join(sections, "\n")},
	}
}

func unlessEmpty(object string) string {
	if object == "{}" || object == "null" {
		return ""
	}
	return object
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // it was parsed from JSON
		return err.Error()
	}
	return string(b)
}

// change is one difference between two modules.
type change struct {
	What    string   `json:"what"`
	A       string   `json:"a"`
	B       string   `json:"b"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// record is a row alone: other formats print all changes as one object.
func (ch change) record() output.Record {
	return output.Record{Row: func() []output.Cell {
		return []output.Cell{{Text: ch.What}, {Text: ch.A, Tint: output.Red}, {Text: ch.B, Tint: output.Green}}
	}}
}

func (c *commands) diff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Show what differs between two modules",
		Long: `Show what differs between two modules: files here or versions on the server. A
module that asks for more capabilities, or imports more, than the one before is
worth a second look.`,
		Example: `  wheelwork module diff totals@1 totals@2
  wheelwork module diff totals@prod totals.wasm -o json`,
		Args: command.Arguments("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in [2]*inspection
			for i := range in {
				var err error
				if in[i], err = c.inspectModule(cmd, args[i]); err != nil {
					return err
				}
				if len(in[i].Sections) == 0 && in[i].Refused != "" { // there is nothing to compare
					return command.Fail("refused", "%s: %s", args[i], in[i].Refused)
				}
			}
			changes := differences(in[0], in[1])
			if c.Format != output.Table {
				return c.PrintOne(nil, output.Object(struct {
					A       string   `json:"a"`
					B       string   `json:"b"`
					Same    bool     `json:"same"`
					Changes []change `json:"changes"`
				}{args[0], args[1], in[0].Digest == in[1].Digest, changes}, nil))
			}
			if in[0].Digest == in[1].Digest {
				c.Note("they are the same bytes: %s", in[0].Digest)
				return nil
			}
			return c.PrintAll([]string{"what", args[0], args[1]}, output.Each(changes, change.record))
		},
	}
}

// differences returns the differences in the order of the output of `module inspect`.
func differences(a, b *inspection) []change {
	changes := []change{}
	one := func(what, x, y string) {
		if x != y {
			changes = append(changes, change{What: what, A: x, B: y, Added: []string{}, Removed: []string{}})
		}
	}
	list := func(what string, x, y []string) {
		added, removed := without(y, x), without(x, y)
		if len(added)+len(removed) > 0 {
			changes = append(changes, change{what, strings.Join(removed, ", "), strings.Join(added, ", "), added, removed})
		}
	}
	one("digest", a.Digest, b.Digest)
	one("size", fmt.Sprint(a.Size), fmt.Sprint(b.Size))
	one("refused", a.Refused, b.Refused)
	one("kind", a.Kind, b.Kind)
	list("handlers", a.Handlers, b.Handlers)
	one("min memory", fmt.Sprint(a.MinMemory), fmt.Sprint(b.MinMemory))
	one("max memory", fmt.Sprint(a.MaxMemory), fmt.Sprint(b.MaxMemory))
	list("abi", a.ABI, b.ABI)
	list("imports", a.Imports, b.Imports)
	list("exports", a.Exports, b.Exports)
	one("capabilities", compact(a.Capabilities), compact(b.Capabilities))
	one("limits", jsonText(a.Limits), jsonText(b.Limits))
	list("signers", a.Signers, b.Signers)
	sizes := func(in *inspection) map[string]int64 {
		m := map[string]int64{}
		for _, s := range in.Sections {
			m[s.Name] += s.Bytes
		}
		return m
	}
	x, y := sizes(a), sizes(b)
	var names []string
	for _, s := range slices.Concat(a.Sections, b.Sections) {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	slices.SortStableFunc(names, func(p, q string) int { return cmp.Compare(y[q]+x[q], y[p]+x[p]) }) // the largest first
	for _, name := range names {
		one("section "+name, fmt.Sprint(x[name]), fmt.Sprint(y[name]))
	}
	return changes
}

// compact returns JSON in one canonical form, so that different spellings of one value
// are equal.
func compact(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return jsonText(v)
}

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	out := []string{}
	for _, s := range list {
		if !slices.Contains(other, s) {
			out = append(out, s)
		}
	}
	return out
}
