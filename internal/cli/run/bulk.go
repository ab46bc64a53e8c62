package run

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/bulk"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// filter holds the flags that select runs.
type filter struct {
	job, state, host string
	triggers         []string
	labels           map[string]string
	sinceText        string
	untilText        string
	since, until     time.Time // after parse; zero: no bound
}

func (f *filter) flags(cmd *cobra.Command, states string) {
	flags := cmd.Flags()
	flags.StringVar(&f.job, "job", "", "only runs of this job")
	flags.StringVar(&f.state, "state", "", states)
	flags.StringVar(&f.host, "host", "", "only runs on this host")
	flags.StringSliceVar(&f.triggers, "trigger", nil, "only runs with this trigger; may be repeated, and then one must match")
	flags.StringToStringVar(&f.labels, "label", nil, "only runs of jobs with this label, as `KEY=VALUE`; may be repeated, and then all must match")
	flags.StringVar(&f.sinceText, "since", "", "live runs, and those that ended at this `time` or later: RFC 3339, a date in UTC, or how long ago, as 6h")
	flags.StringVar(&f.untilText, "until", "", "only runs that ended before this `time`")
	command.Complete(cmd, "trigger", "schedule", "manual", "backfill", "dependency", "retry", "fanout", "workflow", "handler", "event")
}

// parse reads the times.
func (f *filter) parse(cmd *cobra.Command) (err error) {
	now := time.Now()
	if f.sinceText != "" {
		if f.since, err = command.Moment(cmd, "since", f.sinceText, now); err != nil {
			return err
		}
	}
	if f.untilText != "" {
		if f.until, err = command.Moment(cmd, "until", f.untilText, now); err != nil {
			return err
		}
	}
	if f.sinceText != "" && f.untilText != "" && !f.until.After(f.since) {
		return command.Usage(cmd, "--until must be after --since")
	}
	return nil
}

// selects reports whether a flag besides --state is set.
func (f *filter) selects() bool {
	return f.job != "" || f.host != "" || len(f.triggers) > 0 || len(f.labels) > 0 || f.sinceText != "" || f.untilText != ""
}

func (c *commands) bulk() *cobra.Command {
	return command.Group("bulk", "Cancel or retry many runs",
		c.bulkAction(sdk.BulkCancel, "Cancel many live runs", "only runs in this live state (default all of them)"),
		c.bulkAction(sdk.BulkRetry, "Repeat many runs that have ended", "only runs in this state, as failed (default unsuccessful)"))
}

func (c *commands) bulkAction(action, short, states string) *cobra.Command {
	var f filter
	var a bulk.Action
	b := sdk.RunBulk{Action: action}
	cmd := &cobra.Command{
		Use:   action,
		Short: short + "; asks first",
		Long: short + `: those that match all of the flags
that are given. Parts of a run, and the runs of the nodes of a workflow, are left to
their parent. The command shows the number of runs and asks, unless --yes is given.`,
		Example: fmt.Sprintf(`  wheelwork run bulk %[1]s --job totals --dry-run
  wheelwork run bulk %[1]s --label team=billing --since 2h --yes`, action),
		Args: command.Arguments(),
	}
	f.flags(cmd, states)
	cmd.Flags().BoolVar(&b.All, "all", false, "all runs of the app")
	a.Flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.parse(cmd); err != nil {
			return err
		}
		switch {
		case !f.selects() && !b.All:
			return command.Usage(cmd, "say which runs: by --job, --host, --trigger, --label, --since or --until, or --all of them")
		case f.selects() && b.All:
			return command.Usage(cmd, "--all and a selection exclude each other: give one of them")
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			b.App, b.Job, b.State, b.Host, b.Triggers, b.Labels, b.Since, b.Until = c.App, f.job, f.state, f.host, f.triggers, f.labels, f.since, f.until
			a.App, a.Name, a.Noun = c.App, action, "run"
			a.Call = func(dryRun bool, progress func(sdk.Bulked)) (sdk.Bulked, error) {
				b.DryRun, b.Progress = dryRun, progress
				return client.BulkRuns(ctx, b)
			}
			a.Start = func() (*sdk.Operation, error) { return client.StartOperation(ctx, operationOf(b)) }
			_, err := a.Do(c.Printer, cmd)
			return err
		})(cmd, args)
	}
	return cmd
}

// operationOf returns the request for the same change by the server.
func operationOf(b sdk.RunBulk) *sdk.OperationRequest {
	kind := map[string]string{sdk.BulkCancel: sdk.CancelRuns, sdk.BulkRetry: sdk.RetryRuns}[b.Action]
	return &sdk.OperationRequest{App: b.App, Kind: kind, Runs: sdk.SelectRuns(b), All: b.All}
}
