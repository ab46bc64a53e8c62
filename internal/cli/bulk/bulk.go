// Package bulk carries out commands on many objects that the server selects: it counts,
// asks, shows the progress and prints the result.
package bulk

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// Action is a command on many objects.
type Action struct {
	App, Name string // the app, and the action as the API calls it
	Noun      string // one of the objects, as "job"
	Verb      string // in the question; "": Name
	DryRun    bool   // only count
	Yes       bool   // do not ask
	Detach    bool   // let the server carry it out
	// Call sends the action to the server. It calls progress, which may be nil, after each
	// page.
	Call func(dryRun bool, progress func(sdk.Bulked)) (sdk.Bulked, error)
	// Start starts the action as an operation of the server.
	Start func() (*sdk.Operation, error)
}

// Flags defines --dry-run, --yes and --detach.
func (a *Action) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.DryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVar(&a.Yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&a.Detach, "detach", false, "let the server go on alone, and print the operation; see wheelwork operation")
}

// result is the output of an action.
type result struct {
	App      string   `json:"app"`
	Action   string   `json:"action"`
	DryRun   bool     `json:"dry_run"`
	Matched  int64    `json:"matched"`
	Changed  int64    `json:"changed"`
	Failures []string `json:"failures"`
}

// Do carries out an action and prints its result, which it returns. It fails if the server
// refused the action for an object.
func (a *Action) Do(printer *output.Printer, cmd *cobra.Command) (sdk.Bulked, error) {
	found, err := a.Call(true, nil)
	if err != nil {
		return found, err
	}
	done := found
	if !a.DryRun && found.Matched > 0 {
		if !a.Yes {
			verb := cmp.Or(a.Verb, a.Name)
			if err := command.Confirm(cmd, fmt.Sprintf("%s %s of app %s", strings.ToUpper(verb[:1])+verb[1:], command.Count(found.Matched, a.Noun), a.App)); err != nil {
				return done, err
			}
		}
		if a.Detach {
			op, err := a.Start()
			if err != nil {
				return done, err
			}
			return done, printer.PrintOne(OperationColumns(), OperationRecord(op))
		}
		bar := printer.Progress(found.Matched, a.Noun+"s", false)
		done, err = a.Call(false, func(so sdk.Bulked) { bar.Reached(min(so.Matched, found.Matched)) })
		bar.End()
	}
	out := result{App: a.App, Action: a.Name, DryRun: a.DryRun, Matched: done.Matched, Changed: done.Changed, Failures: append([]string{}, done.Failures...)}
	printed := printer.PrintOne([]string{"action", "matched", "changed", "failures"}, output.Object(out, func() []output.Cell {
		return []output.Cell{{Text: a.Name}, {Text: fmt.Sprint(done.Matched)}, {Text: fmt.Sprint(done.Changed)}, {Text: strings.Join(done.Failures, "\n"), Tint: output.Red}}
	}))
	switch {
	case err != nil:
		return done, err
	case printed != nil:
		return done, printed
	case len(done.Failures) > 0:
		return done, command.Fail("refused", "%d of %s refused: the list says why", done.Matched-done.Changed, command.Count(done.Matched, a.Noun))
	}
	return done, nil
}
