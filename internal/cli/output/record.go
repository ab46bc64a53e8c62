package output

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Record is one element of the output.
type Record struct {
	JSON func() ([]byte, error) // with any white space
	YAML func() ([]byte, error) // a document without separator; nil: derived from json
	Row  func() []Cell
}

// Cell is one cell of a table.
type Cell struct {
	Text string
	Tint Tint
}

// Message returns the record of an API message. Its JSON is the API's own.
func Message(m proto.Message, row func() []Cell) Record {
	return Record{
		JSON: func() ([]byte, error) {
			return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
		},
		Row: row,
	}
}

// Object returns the record of any other value that encodes as a JSON object.
func Object(v any, row func() []Cell) Record {
	return Record{JSON: func() ([]byte, error) { return json.Marshal(v) }, Row: row}
}

// Records converts a list of the API for the output.
func Records[T any](list iter.Seq2[T, error], convert func(T) Record) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for element, err := range list {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(convert(element), nil) {
				return
			}
		}
	}
}

// Each converts a list that is complete for the output.
func Each[T any](list []T, convert func(T) Record) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, element := range list {
			if !yield(convert(element), nil) {
				return
			}
		}
	}
}

// Values converts a list that is complete to an iterator without errors.
func Values[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, element := range list {
			if !yield(element, nil) {
				return
			}
		}
	}
}

// PrintOne writes a single record; its table has one line for each column.
func (p *Printer) PrintOne(columns []string, r Record) error {
	w := bufio.NewWriter(p.Out)
	err := p.writeOne(w, columns, r)
	return cmp.Or(err, w.Flush())
}

func (p *Printer) writeOne(w io.Writer, columns []string, r Record) error {
	switch p.Format {
	case Table:
		width := 0
		for _, name := range columns {
			width = max(width, displayWidth(name))
		}
		for i, cell := range r.Row() {
			if cell.Text == "" {
				continue
			}
			text := strings.ReplaceAll(Printable(strings.TrimRight(cell.Text, "\n")), "\n", "\n"+strings.Repeat(" ", width+2))
			fmt.Fprintf(w, "%s  %s\n", p.Paint(p.Out, Faint, Pad(columns[i], width)), p.Paint(p.Out, cell.Tint, text))
		}
		return nil
	case YAML:
		return writeYAML(w, r)
	}
	return p.writeJSON(w, r, "")
}

// PrintAll writes a list. At the first error it stops, after writing the elements before
// it.
func (p *Printer) PrintAll(columns []string, records iter.Seq2[Record, error]) error {
	w := bufio.NewWriter(p.Out)
	var err error
	switch p.Format {
	case Table:
		err = p.writeTable(w, columns, records)
	case JSON:
		err = p.writeArray(w, records)
	default:
		first := true
		for r, e := range records {
			if err = e; err != nil {
				break
			}
			if p.Format == YAML && !first {
				fmt.Fprintln(w, "---")
			}
			first = false
			if err = p.writeOne(w, columns, r); err != nil {
				break
			}
		}
	}
	return cmp.Or(err, w.Flush())
}

// PrintStream writes each element of a list as soon as it arrives. As a table has no
// columns then, line formats an element for people.
func PrintStream[T any](p *Printer, list iter.Seq2[T, error], line func(T) string, convert func(T) Record) error {
	if p.Format == JSON {
		return p.PrintAll(nil, Records(list, convert))
	}
	w := bufio.NewWriter(p.Out)
	first := true
	for element, err := range list {
		if err != nil {
			return err
		}
		if p.Format == Table {
			fmt.Fprintln(w, line(element))
		} else {
			if p.Format == YAML && !first {
				fmt.Fprintln(w, "---")
			}
			if err := p.writeOne(w, nil, convert(element)); err != nil {
				return err
			}
		}
		first = false
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) writeArray(w io.Writer, records iter.Seq2[Record, error]) error {
	before, after := "[\n  ", "[]\n"
	var failed error
	for r, err := range records {
		if failed = err; failed != nil {
			break
		}
		fmt.Fprint(w, before)
		if failed = p.writeJSON(noNewline{w}, r, "  "); failed != nil {
			break
		}
		before, after = ",\n  ", "\n]\n"
	}
	fmt.Fprint(w, after) // also after an error, so that standard output stays valid JSON
	return failed
}

// writeJSON writes a record with fixed white space, because protojson varies its white
// space on purpose.
func (p *Printer) writeJSON(w io.Writer, r Record, prefix string) error {
	raw, err := r.JSON()
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	var b bytes.Buffer
	if p.Format == JSONL {
		err = json.Compact(&b, raw)
	} else {
		err = json.Indent(&b, raw, prefix, "  ")
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// noNewline removes the line break at the end of each write.
type noNewline struct{ w io.Writer }

func (n noNewline) Write(p []byte) (int, error) {
	_, err := n.w.Write(bytes.TrimSuffix(p, []byte("\n")))
	return len(p), err
}

func writeYAML(w io.Writer, r Record) error {
	if r.YAML != nil {
		document, err := r.YAML()
		if err != nil {
			return err
		}
		_, err = w.Write(document)
		return err
	}
	raw, err := r.JSON()
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	var node yaml.Node // JSON is YAML, and a node preserves the order of the fields
	if err := yaml.Unmarshal(raw, &node); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	plain(&node)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return cmp.Or(encoder.Encode(&node), encoder.Close())
}

// plain removes the braces and quotes of JSON where YAML needs none.
func plain(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || !strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		n.Style = 0
	}
	for _, child := range n.Content {
		plain(child)
	}
}

func (p *Printer) writeTable(w io.Writer, columns []string, records iter.Seq2[Record, error]) error {
	var failed error
	var rows [][]Cell
	widths := make([]int, len(columns))
	for i, name := range columns {
		widths[i] = displayWidth(name)
	}
	for r, err := range records {
		if failed = err; failed != nil {
			break
		}
		row := r.Row()
		for i := range row {
			row[i].Text = strings.ReplaceAll(Printable(row[i].Text), "\n", " ")
			widths[i] = max(widths[i], displayWidth(row[i].Text))
		}
		rows = append(rows, row)
	}
	if failed != nil && len(rows) == 0 {
		return failed
	}
	head := make([]Cell, len(columns))
	for i, name := range columns {
		head[i] = Cell{strings.ToUpper(name), Faint}
	}
	for _, row := range append([][]Cell{head}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			gap := "  "
			if i == len(row)-1 {
				gap, widths[i] = "", 0 // no spaces at the end of a line
			}
			line.WriteString(p.Paint(p.Out, cell.Tint, Pad(cell.Text, widths[i])) + gap)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	return failed
}
