package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Output formats.
const (
	formatTable = "table"
	formatJSON  = "json"  // one document: an object, or an array for a list
	formatJSONL = "jsonl" // one object on each line
	formatYAML  = "yaml"
)

func formats() []string { return []string{formatTable, formatJSON, formatJSONL, formatYAML} }

// record is one element of the output.
type record struct {
	json func() ([]byte, error) // with any white space
	yaml func() ([]byte, error) // a document without separator; nil: derived from json
	row  func() []cell
}

// cell is one cell of a table.
type cell struct {
	text string
	tint tint
}

// message returns the record of an API message. Its JSON is the API's own.
func message(m proto.Message, row func() []cell) record {
	return record{
		json: func() ([]byte, error) {
			return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
		},
		row: row,
	}
}

// object returns the record of any other value that encodes as a JSON object.
func object(v any, row func() []cell) record {
	return record{json: func() ([]byte, error) { return json.Marshal(v) }, row: row}
}

// printOne writes a single record; its table has one line for each column.
func (c *cli) printOne(columns []string, r record) error {
	w := bufio.NewWriter(c.out)
	err := c.writeOne(w, columns, r)
	return firstError(err, w.Flush())
}

func (c *cli) writeOne(w io.Writer, columns []string, r record) error {
	switch c.format {
	case formatTable:
		width := 0
		for _, name := range columns {
			width = max(width, displayWidth(name))
		}
		for i, cell := range r.row() {
			if cell.text == "" {
				continue
			}
			text := strings.ReplaceAll(printable(strings.TrimRight(cell.text, "\n")), "\n", "\n"+strings.Repeat(" ", width+2))
			fmt.Fprintf(w, "%s  %s\n", c.paint(c.out, faint, pad(columns[i], width)), c.paint(c.out, cell.tint, text))
		}
		return nil
	case formatYAML:
		return writeYAML(w, r)
	}
	return c.writeJSON(w, r, "")
}

// printAll writes a list. At the first error it stops, after writing the elements before
// it.
func (c *cli) printAll(columns []string, records iter.Seq2[record, error]) error {
	w := bufio.NewWriter(c.out)
	var err error
	switch c.format {
	case formatTable:
		err = c.writeTable(w, columns, records)
	case formatJSON:
		err = c.writeArray(w, records)
	default:
		first := true
		for r, e := range records {
			if err = e; err != nil {
				break
			}
			if c.format == formatYAML && !first {
				fmt.Fprintln(w, "---")
			}
			first = false
			if err = c.writeOne(w, columns, r); err != nil {
				break
			}
		}
	}
	return firstError(err, w.Flush())
}

func (c *cli) writeArray(w io.Writer, records iter.Seq2[record, error]) error {
	before, after := "[\n  ", "[]\n"
	var failed error
	for r, err := range records {
		if failed = err; failed != nil {
			break
		}
		fmt.Fprint(w, before)
		if failed = c.writeJSON(noNewline{w}, r, "  "); failed != nil {
			break
		}
		before, after = ",\n  ", "\n]\n"
	}
	fmt.Fprint(w, after) // also after an error, so that standard output stays valid JSON
	return failed
}

// writeJSON writes a record with fixed white space, because protojson varies its white
// space on purpose.
func (c *cli) writeJSON(w io.Writer, r record, prefix string) error {
	raw, err := r.json()
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	var b bytes.Buffer
	if c.format == formatJSONL {
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

func writeYAML(w io.Writer, r record) error {
	if r.yaml != nil {
		document, err := r.yaml()
		if err != nil {
			return err
		}
		_, err = w.Write(document)
		return err
	}
	raw, err := r.json()
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
	return firstError(encoder.Encode(&node), encoder.Close())
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

func (c *cli) writeTable(w io.Writer, columns []string, records iter.Seq2[record, error]) error {
	var failed error
	var rows [][]cell
	widths := make([]int, len(columns))
	for i, name := range columns {
		widths[i] = displayWidth(name)
	}
	for r, err := range records {
		if failed = err; failed != nil {
			break
		}
		row := r.row()
		for i := range row {
			row[i].text = strings.ReplaceAll(printable(row[i].text), "\n", " ")
			widths[i] = max(widths[i], displayWidth(row[i].text))
		}
		rows = append(rows, row)
	}
	if failed != nil && len(rows) == 0 {
		return failed
	}
	head := make([]cell, len(columns))
	for i, name := range columns {
		head[i] = cell{strings.ToUpper(name), faint}
	}
	for _, row := range append([][]cell{head}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			gap := "  "
			if i == len(row)-1 {
				gap, widths[i] = "", 0 // no spaces at the end of a line
			}
			line.WriteString(c.paint(c.out, cell.tint, pad(cell.text, widths[i])) + gap)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	return failed
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-displayWidth(s), 0))
}

// displayWidth returns the width of a text in terminal columns: two for East Asian
// characters and emoji, none for combining marks.
func displayWidth(s string) int {
	width := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
			r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
			r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd):
			width += 2
		default:
			width++
		}
	}
	return width
}

// printable replaces control characters with a visible form: a log line or a description
// must not control the reader's terminal.
func printable(s string) string {
	if !strings.ContainsFunc(s, steers) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if steers(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func steers(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }

// tint is the number of an ANSI colour; none leaves the text unchanged.
type tint string

const (
	none   tint = ""
	faint  tint = "2"
	red    tint = "31"
	green  tint = "32"
	yellow tint = "33"
	cyan   tint = "36"
)

func stateTint(state string) tint {
	switch state {
	case "succeeded", "up":
		return green
	case "failed", "timed_out", "missed", "lost":
		return red
	case "dispatched", "running", "sleeping":
		return cyan
	case "waiting", "stopped", "cancelled", "draining":
		return yellow
	}
	return none
}

// paint colours a text if colours are enabled for w.
func (c *cli) paint(w io.Writer, t tint, s string) string {
	if t == none || !c.colored(w) {
		return s
	}
	return "\x1b[" + string(t) + "m" + s + "\x1b[0m"
}

func (c *cli) colored(w io.Writer) bool {
	switch {
	case c.color == "always":
		return true
	case c.color == "never", c.getenv("NO_COLOR") != "", c.getenv("TERM") == "dumb":
		return false
	}
	return terminal(w)
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.RFC3339)
}

// bytesText formats a size for people.
func bytesText(n int64) string {
	size, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; size >= 1024 && i < len(units)-1; i++ {
		size /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[i])
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
