package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// Group returns a command that only contains other commands.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	g.AddCommand(commands...)
	g.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return Unknown(cmd, args[0])
		case !cmd.HasParent():
			return cmd.Help()
		}
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return Usage(cmd, "%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	return g
}

// Unknown returns the error for a command that does not exist. It suggests the command of
// the same group that was probably meant, or the commands of that name in other groups.
func Unknown(cmd *cobra.Command, name string) error {
	if near := suggestion(cmd, name); near != "" {
		return Usage(cmd, "there is no command %q: did you mean %q?", cmd.CommandPath()+" "+name, cmd.CommandPath()+" "+near)
	}
	var elsewhere []string
	for _, group := range cmd.Commands() {
		for _, sub := range group.Commands() {
			if sub.Name() == name {
				elsewhere = append(elsewhere, fmt.Sprintf("%q", sub.CommandPath()))
			}
		}
	}
	if len(elsewhere) > 0 {
		return Usage(cmd, "there is no command %q: did you mean %s?", cmd.CommandPath()+" "+name, strings.Join(elsewhere, " or "))
	}
	return Usage(cmd, "there is no command %q", cmd.CommandPath()+" "+name)
}

// suggestion returns the name of the subcommand that a person probably meant, "" if there
// is none: one that lists the name in SuggestFor, or begins with it, or is similar.
func suggestion(cmd *cobra.Command, name string) string {
	var names, beginning []string
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, name) {
			return sub.Name()
		}
		if strings.HasPrefix(sub.Name(), name) {
			beginning = append(beginning, sub.Name())
		}
		names = append(names, sub.Name())
	}
	if len(beginning) > 0 {
		return beginning[0]
	}
	return spelling.Nearest(name, names)
}

// Count returns a number with a noun that takes an s in the plural.
func Count[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Arguments requires exactly the named arguments; a last name that ends in "..." stands
// for one or more.
func Arguments(names ...string) cobra.PositionalArgs {
	more := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usage(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names) && !more:
			return Usage(cmd, "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// OptionalArgument accepts the named argument or none.
func OptionalArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return Arguments(name)(cmd, args)
	}
}

// Complete sets the values of a flag for completion in the shell.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(fmt.Sprintf("complete --%s of %s: %v", flag, cmd.Name(), err)) // the flag is misspelt in this program
	}
}

// Moment parses an instant of the command line: RFC 3339, a date in UTC, or how long
// before now. flag is the flag's name for the error.
func Moment(cmd *cobra.Command, flag, text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, Usage(cmd, "--%s %q: want a time as 2026-03-08T12:00:00Z, a date as 2026-03-08, or how long ago, as 6h", flag, text)
}
