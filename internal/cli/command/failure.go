package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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

// FlagError rewrites the error of a flag for people. The errors for durations come from
// Go's package time and do not explain units.
func FlagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if before, _, ok := strings.Cut(text, ": time: "); ok {
		text = before + ": want a number with its unit, as 500ms, 30s or 5m"
	}
	return Usage(cmd, "%s", text)
}
