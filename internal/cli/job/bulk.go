package job

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) bulk() *cobra.Command {
	return command.Group("bulk", "Pause, resume, trigger or delete many jobs",
		c.bulkAction(sdk.BulkPause, "Keep the schedules of many jobs from firing"),
		c.bulkAction(sdk.BulkResume, "Let the schedules of many paused jobs fire again"),
		c.bulkAction(sdk.BulkTrigger, "Run many jobs now"),
		c.bulkAction(sdk.BulkDelete, "Delete many jobs; accepted runs continue"))
}

func (c *commands) bulkAction(action, short string) *cobra.Command {
	b := sdk.Bulk{Action: action}
	var yes bool
	cmd := &cobra.Command{
		Use:   action + " [JOB...]",
		Short: short + "; asks first",
		Long: short + `: those that match all of the
names, --prefix and --label that are given. The command shows their number and
asks, unless --yes is given.`,
		Example: fmt.Sprintf(`  wheelwork job bulk %[1]s --label team=billing --dry-run
  wheelwork job bulk %[1]s --prefix tenant-17- --yes`, action),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeJobs,
	}
	flags := cmd.Flags()
	flags.StringVar(&b.Prefix, "prefix", "", "only names with this prefix")
	flags.StringToStringVar(&b.Labels, "label", nil, "only with this label, as `KEY=VALUE`; may be repeated, and then all must match")
	flags.BoolVar(&b.All, "all", false, "all jobs of the app")
	flags.BoolVar(&b.DryRun, "dry-run", false, "only count")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	if action == sdk.BulkDelete {
		flags.BoolVar(&b.Force, "force", false, "also jobs that jobs outside the selection name")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b.App, b.Names = c.App, args
		chosen := b.Prefix != "" || len(b.Labels) > 0 || len(args) > 0
		switch {
		case !chosen && !b.All:
			return command.Usage(cmd, "say which jobs: by name, --prefix or --label, or --all of them")
		case chosen && b.All:
			return command.Usage(cmd, "--all and a selection exclude each other: give one of them")
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.doBulk(ctx, client, cmd, b, yes)
		})(cmd, args)
	}
	return cmd
}

// bulked is the output of a command on many jobs that the server selects.
type bulked struct {
	App      string   `json:"app"`
	Action   string   `json:"action"`
	DryRun   bool     `json:"dry_run"`
	Matched  int64    `json:"matched"`
	Changed  int64    `json:"changed"`
	Failures []string `json:"failures"`
}

func (c *commands) doBulk(ctx context.Context, client *sdk.Client, cmd *cobra.Command, b sdk.Bulk, yes bool) error {
	counting := b
	counting.DryRun = true
	found, err := client.Bulk(ctx, counting)
	if err != nil {
		return err
	}
	done := found
	if !b.DryRun && found.Matched > 0 {
		if !yes {
			if err := command.Confirm(cmd, fmt.Sprintf("%s %s of app %s", strings.ToUpper(b.Action[:1])+b.Action[1:], command.Count(found.Matched, "job"), b.App)); err != nil {
				return err
			}
		}
		bar := c.Progress(found.Matched, "jobs", false)
		b.Progress = func(so sdk.Bulked) { bar.Reached(min(so.Matched, found.Matched)) }
		done, err = client.Bulk(ctx, b)
		bar.End()
	}
	out := bulked{App: b.App, Action: b.Action, DryRun: b.DryRun, Matched: done.Matched, Changed: done.Changed, Failures: append([]string{}, done.Failures...)}
	printed := c.PrintOne([]string{"action", "matched", "changed", "failures"}, output.Object(out, func() []output.Cell {
		return []output.Cell{{Text: b.Action}, {Text: fmt.Sprint(done.Matched)}, {Text: fmt.Sprint(done.Changed)}, {Text: strings.Join(done.Failures, "\n"), Tint: output.Red}}
	}))
	switch {
	case err != nil:
		return err
	case printed != nil:
		return printed
	case len(done.Failures) > 0:
		return command.Fail("refused", "%d of %s refused: the list says why", done.Matched-done.Changed, command.Count(done.Matched, "job"))
	case len(b.Names) > 0 && b.Prefix == "" && len(b.Labels) == 0 && done.Matched < int64(len(distinct(b.Names))):
		return command.Fail("not_found", "%d of the named jobs are not in app %s", int64(len(distinct(b.Names)))-done.Matched, b.App)
	}
	return nil
}

func distinct(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}
