package definition

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) history() *cobra.Command {
	return &cobra.Command{
		Use:   "history KIND NAME",
		Short: "List the changes of a definition, the newest first",
		Long:  "List the changes of a definition, the newest first: when, by whom and why. The newest 100 changes\nof each definition stay.\n\n" + kinds,
		Example: `  wheelwork history job report
  wheelwork history alias greet@prod -o json`,
		Args:              command.Arguments("KIND", "NAME"),
		ValidArgsFunction: c.completeKinds,
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			o, err := c.object(cmd, args)
			if err != nil {
				return err
			}
			all, err := client.Revisions(ctx, o.app, o.kind, o.name)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				c.Note("%s %s has not changed since its changes are recorded", o.kind, o.name)
			}
			return c.PrintAll([]string{"revision", "at", "change", "author", "cause", "note"}, output.Each(all, func(r *sdk.Revision) output.Record {
				return output.Message(r, func() []output.Cell {
					return []output.Cell{
						{Text: strconv.FormatInt(r.GetNumber(), 10)},
						{Text: r.GetAt().AsTime().Local().Format(time.DateTime)},
						{Text: changeText(r)},
						{Text: r.GetAuthor()},
						{Text: r.GetCause()},
						{Text: r.GetNote()},
					}
				})
			}))
		}),
	}
}

// changeText says what a revision did.
func changeText(r *sdk.Revision) string {
	switch {
	case r.GetDeleted():
		return "deleted"
	case r.GetRollback() > 0:
		return fmt.Sprintf("rolled back to %d", r.GetRollback())
	case r.GetNumber() == 1:
		return "created"
	}
	return "updated"
}

func (c *commands) rollback() *cobra.Command {
	var to int64
	var note string
	var change string
	undo := planning{commands: c}
	cmd := &cobra.Command{
		Use:   "rollback {KIND NAME --to N | --change ID}",
		Short: "Make a definition what it was after an earlier change, or undo a change",
		Long: `Make a definition what it was after revision N. This is a change too and makes a new
revision, so it can be rolled back as well. A definition that was deleted is created
again. It fails if the definition is no longer valid, for example because a calendar
that it names is gone.

` + kinds + `

With --change it undoes the change with this id, which "wheelwork promote" and
"wheelwork apply PLAN" print and the audit log has: objects that the change created are deleted,
and the others become what they were before it. The command shows that, asks unless --yes is
given, and does all of it or nothing. It refuses if one of the objects was changed since. Modules
stay. It needs the permission audit.read. --in names the environment of the change.`,
		Example: `  wheelwork rollback job report --to 3 --note "the new schedule was wrong"
  wheelwork rollback --change c20260102t150405-abcdefgh --in prod`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: c.completeKinds,
	}
	cmd.Flags().StringVar(&change, "change", "", "`id` of the change to undo")
	cmd.Flags().StringVar(&undo.to, "in", "", "with --change, the `name` of the environment: a context (default the server of the command line)")
	cmd.Flags().BoolVar(&undo.yes, "yes", false, "with --change, do not ask")
	undo.completeContexts(cmd, "in")
	cmd.Flags().Int64Var(&to, "to", 0, "`number` of the revision (required)")
	cmd.Flags().StringVar(&note, "note", "", "reason, for the history")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if change != "" {
			if len(args) > 0 || to > 0 {
				return command.Usage(cmd, "--change and KIND NAME --to: roll back a change, or one definition")
			}
			undo.note = note
			return undo.undo(cmd, change)
		}
		if undo.to != "" || undo.yes {
			return command.Usage(cmd, "--in and --yes go with --change")
		}
		if err := command.Arguments("KIND", "NAME")(cmd, args); err != nil {
			return err
		}
		o, err := c.object(cmd, args)
		switch {
		case err != nil:
			return err
		case to < 1:
			return command.Usage(cmd, "say which revision with --to: `wheelwork history %s %s` lists them", o.kind, o.name)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			if _, err := client.RollBack(sdk.WithNote(ctx, note), o.app, o.kind, o.name, to); err != nil {
				return err
			}
			c.Note("%s %s: rolled back to revision %d", o.kind, o.name, to)
			return nil
		})(cmd, args)
	}
	return cmd
}
