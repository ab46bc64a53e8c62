package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// CodeUsage is the code of a mistake in the command line itself.
const CodeUsage = "usage"

// Failure is an error with a code for machines and one sentence for people.
type Failure struct {
	Code, Message string
}

// Error returns the sentence.
func (f *Failure) Error() string { return f.Message }

// Fail returns a failure.
func Fail(code, format string, args ...any) error {
	return &Failure{code, fmt.Sprintf(format, args...)}
}

// Usage returns the failure for a mistake in the command line of cmd.
func Usage(cmd *cobra.Command, format string, args ...any) error {
	return Fail(CodeUsage, "%s; see \"%s --help\"", fmt.Sprintf(format, args...), cmd.CommandPath())
}

// FlagError is the usage error for a flag that cannot be parsed. It replaces the texts of
// Go's parsers, suggests the flag that was probably meant, and reports a command that does
// not exist before a flag of it.
func FlagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return Unknown(cmd, args[0])
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := spelling.Nearest(name, names); near != "" {
			return Usage(cmd, "there is no flag --%s: did you mean --%s?", name, near)
		}
		return Usage(cmd, "there is no flag --%s", name)
	}
	if _, group, ok := strings.Cut(text, "unknown shorthand flag: "); ok {
		letter, _, _ := strings.Cut(group, " in -")
		return Usage(cmd, "there is no flag -%s", strings.Trim(letter, "'"))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return Usage(cmd, "--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid.GetFlag()))
	}
	return Usage(cmd, "%s", text)
}

// wanted describes the values of a flag.
func wanted(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return "a number with its unit, as 500ms, 30s or 5m"
	case "bool":
		return "true or false"
	case "float64":
		return "a number"
	case "stringToString":
		return "NAME=VALUE"
	}
	if strings.HasPrefix(f.Value.Type(), "uint") {
		return "a whole number, 0 or more"
	}
	return "a whole number"
}

// Compares is the annotation of commands that compare: their exit codes are 0 without a
// difference, 2 with differences ([ErrDiffers]), 1 for an error and 64 for wrong usage.
var Compares = map[string]string{compares: "yes"}

const compares = "compares"

// ComparesBy reports whether a command has the annotation [Compares].
func ComparesBy(cmd *cobra.Command) bool { return cmd.Annotations[compares] != "" }

// ErrDiffers is the result of a command that compares and has printed differences.
var ErrDiffers = errors.New("there are differences")
