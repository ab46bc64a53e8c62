package output

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

// Output formats.
const (
	Table = "table"
	JSON  = "json"  // one document: an object, or an array for a list
	JSONL = "jsonl" // one object on each line
	YAML  = "yaml"
)

func formats() []string { return []string{Table, JSON, JSONL, YAML} }

// Printer prints the output of one invocation.
type Printer struct {
	Out, Err io.Writer
	Format   string // one of the formats

	color  string // auto, always or never
	getenv func(string) string
}

// New adds the flags about the output to the root command.
func New(root *cobra.Command, getenv func(string) string) *Printer {
	p := &Printer{Out: root.OutOrStdout(), Err: root.ErrOrStderr(), getenv: getenv}
	flags := root.PersistentFlags()
	flags.StringVarP(&p.Format, "output", "o", Table, "`form` of the output: "+strings.Join(formats(), ", "))
	flags.StringVar(&p.color, "color", "auto", "colours: auto, always, never; NO_COLOR turns auto off")
	command.Complete(root, "output", formats()...)
	command.Complete(root, "color", "auto", "always", "never")
	return p
}

// Check checks the flags after they are parsed.
func (p *Printer) Check(cmd *cobra.Command) error {
	if !slices.Contains(formats(), p.Format) {
		return command.Usage(cmd, "there is no output form %q: want one of %s", p.Format, strings.Join(formats(), ", "))
	}
	if !slices.Contains([]string{"auto", "always", "never"}, p.color) {
		return command.Usage(cmd, "--color %q: want auto, always or never", p.color)
	}
	return nil
}

// AsksForJSON reports whether a command line selects JSON. It needs no parser, so that it
// also works for command lines that have a wrong flag.
func AsksForJSON(args []string) bool {
	return slices.ContainsFunc([]string{JSON, JSONL}, func(form string) bool { return asksFor(args, form) })
}

func asksFor(args []string, form string) bool {
	for i, arg := range args {
		switch {
		case arg == "-o"+form, arg == "-o="+form, arg == "--output="+form:
			return true
		case i > 0 && arg == form && (args[i-1] == "-o" || args[i-1] == "--output"):
			return true
		}
	}
	return false
}

// Note prints a message to standard error, separate from the data. It ignores an empty one.
func (p *Printer) Note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		fmt.Fprintln(p.Err, Printable(text))
	}
}

// Paint colours a text if colours are enabled for w.
func (p *Printer) Paint(w io.Writer, t Tint, s string) string {
	if t == None || !p.colored(w) {
		return s
	}
	return "\x1b[" + string(t) + "m" + s + "\x1b[0m"
}

func (p *Printer) colored(w io.Writer) bool {
	switch {
	case p.color == "always":
		return true
	case p.color == "never", p.getenv("NO_COLOR") != "", p.getenv("TERM") == "dumb":
		return false
	}
	return IsTerminal(w)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
