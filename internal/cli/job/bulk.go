package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/bulk"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
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
	var a bulk.Action
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
	a.Flags(cmd)
	var p pauseFlags
	if action == sdk.BulkPause {
		p.add(cmd)
	}
	if action == sdk.BulkDelete {
		flags.BoolVar(&b.Force, "force", false, "also jobs that jobs outside the selection name")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b.App, b.Names = c.App, args
		var err error
		if b.Pause, err = p.pause(cmd); err != nil {
			return err
		}
		chosen := b.Prefix != "" || len(b.Labels) > 0 || len(args) > 0
		switch {
		case !chosen && !b.All:
			return command.Usage(cmd, "say which jobs: by name, --prefix or --label, or --all of them")
		case chosen && b.All:
			return command.Usage(cmd, "--all and a selection exclude each other: give one of them")
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			if a.Detach && len(args) > 0 {
				return command.Usage(cmd, "--detach works with --prefix, --label or --all, not with names")
			}
			return c.doBulk(ctx, client, cmd, b, a)
		})(cmd, args)
	}
	return cmd
}

func (c *commands) doBulk(ctx context.Context, client *sdk.Client, cmd *cobra.Command, b sdk.Bulk, a bulk.Action) error {
	a.App, a.Name, a.Noun = b.App, b.Action, "job"
	a.Call = func(dryRun bool, progress func(sdk.Bulked)) (sdk.Bulked, error) {
		b.DryRun, b.Progress = dryRun, progress
		return client.Bulk(ctx, b)
	}
	a.Start = func() (*sdk.Operation, error) {
		kind := map[string]string{sdk.BulkPause: sdk.PauseJobs, sdk.BulkResume: sdk.ResumeJobs, sdk.BulkTrigger: sdk.RunJobs, sdk.BulkDelete: sdk.DeleteJobs}[b.Action]
		req := &sdk.OperationRequest{App: b.App, Kind: kind, Jobs: &sdk.JobSelection{Prefix: b.Prefix, Labels: b.Labels}, All: b.All, Force: b.Force}
		b.Pause.Set(req)
		return client.StartOperation(ctx, req)
	}
	done, err := a.Do(c.Printer, cmd)
	if err == nil && len(b.Names) > 0 && b.Prefix == "" && len(b.Labels) == 0 && done.Matched < int64(len(distinct(b.Names))) {
		return command.Fail("not_found", "%d of the named jobs are not in app %s", int64(len(distinct(b.Names)))-done.Matched, b.App)
	}
	return err
}

func distinct(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}
