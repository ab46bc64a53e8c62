package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/bulk"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) delete() *cobra.Command {
	var f filter
	var a bulk.Action
	var all, payload bool
	cmd := &cobra.Command{
		Use:   "delete [ID...]",
		Short: "Delete runs that have ended, or their payloads; asks first",
		Long: `Delete runs that have ended: those with the IDs, or those that match all of the flags
that are given. Log lines, parts and the runs of nodes go with them. With --payload
the runs stay, with state, times and errors, and their inputs, outputs and log lines
go. A live run is refused: cancel it first.

No reader finds them from then on. The bytes leave the disk later; backups that were
made before have them.`,
		Example: `  wheelwork run delete 01K9…
  wheelwork run delete --job totals --until 2026-01-01 --dry-run
  wheelwork run delete --payload --label customer=4711 --yes`,
		Args: cobra.ArbitraryArgs,
	}
	f.flags(cmd, "only runs in this ended state (default all of them)")
	cmd.Flags().BoolVar(&all, "all", false, "all runs of the app that have ended")
	cmd.Flags().BoolVar(&payload, "payload", false, "delete only inputs, outputs and log lines")
	a.Flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.parse(cmd); err != nil {
			return err
		}
		filtered := f.selects() || f.state != ""
		switch {
		case len(args) > 0 && (filtered || all || a.Detach):
			return command.Usage(cmd, "IDs exclude --all, --detach and the flags that select runs: give one of them")
		case len(args) == 0 && !f.selects() && !all:
			return command.Usage(cmd, "say which runs: by their IDs, by --job, --host, --trigger, --label, --since or --until, or --all of them")
		case f.selects() && all:
			return command.Usage(cmd, "--all and a selection exclude each other: give one of them")
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			a.App, a.Name, a.Noun = c.App, "delete", "run"
			kind := sdk.DeleteRuns
			if payload {
				a.Name, a.Verb, kind = "purge", "delete the payloads of", sdk.PurgeRuns
			}
			if len(args) > 0 {
				a.Call = func(dryRun bool, progress func(sdk.Bulked)) (sdk.Bulked, error) {
					return c.deleteEach(ctx, client, args, payload, dryRun, progress)
				}
				_, err := a.Do(c.Printer, cmd)
				return err
			}
			by := sdk.RunBulk{Job: f.job, State: f.state, Host: f.host, Triggers: f.triggers, Labels: f.labels, Since: f.since, Until: f.until}
			req := &sdk.OperationRequest{App: c.App, Kind: kind, Runs: sdk.SelectRuns(by), All: all}
			a.Call = func(dryRun bool, progress func(sdk.Bulked)) (sdk.Bulked, error) {
				if dryRun {
					found, err := client.PreviewOperation(ctx, req)
					return sdk.Bulked{Matched: found.GetMatched()}, err
				}
				return operate(ctx, client, req, progress)
			}
			a.Start = func() (*sdk.Operation, error) { return client.StartOperation(ctx, req) }
			_, err := a.Do(c.Printer, cmd)
			return err
		})(cmd, args)
	}
	return cmd
}

// deleteEach deletes runs by their ids.
func (c *commands) deleteEach(ctx context.Context, client *sdk.Client, ids []string, payload, dryRun bool, progress func(sdk.Bulked)) (done sdk.Bulked, err error) {
	change := client.DeleteRun
	switch {
	case dryRun:
		change = func(ctx context.Context, app, id string) error {
			_, err := client.Run(ctx, app, id)
			return err
		}
	case payload:
		change = client.PurgeRun
	}
	for _, id := range ids {
		err := change(ctx, c.App, id)
		if ctx.Err() != nil || dryRun && err != nil {
			return done, err
		}
		done.Matched++
		switch {
		case err != nil:
			done.Failures = append(done.Failures, err.Error())
		case !dryRun:
			done.Changed++
		}
		if progress != nil {
			progress(done)
		}
	}
	return done, nil
}

// operate starts an operation and waits for its end.
func operate(ctx context.Context, client *sdk.Client, req *sdk.OperationRequest, progress func(sdk.Bulked)) (sdk.Bulked, error) {
	op, err := client.StartOperation(ctx, req)
	for {
		done := sdk.Bulked{Matched: op.GetDone() + op.GetSkipped() + op.GetFailed(), Changed: op.GetDone(), Failures: op.GetErrors()}
		if progress != nil {
			progress(done)
		}
		switch {
		case err != nil:
			return done, err
		case op.GetState() == "done":
			return done, nil
		case op.GetState() == "failed":
			return done, errors.New(op.GetError())
		case op.GetState() == "cancelled":
			return done, fmt.Errorf("the operation was cancelled by %s", op.GetCancelledBy())
		}
		select {
		case <-ctx.Done():
			return done, fmt.Errorf("operation %s goes on: `wheelwork operation get %s` shows it: %w", op.GetId(), op.GetId(), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
		op, err = client.Operation(ctx, req.App, op.GetId())
	}
}
