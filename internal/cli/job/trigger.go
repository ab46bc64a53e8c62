package job

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) trigger() *cobra.Command {
	var input, key string
	var wait bool
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Run a job now",
		Long: `Run a job now and print the run: as soon as it is durable or, with --wait, when
it has ended. With --wait the exit code is 1 unless the run succeeded.`,
		Example: `  wheelwork job trigger totals --input @orders.csv --wait
  wheelwork job trigger totals -o json | jq -r .id`,
		Args:              command.Arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
	}
	cmd.Flags().StringVar(&input, "input", "", "input instead of the job's own: a text, @FILE, or @- for standard input")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: the same key starts one run, however often it is sent")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := sdk.Trigger{App: c.App, Job: args[0], Key: key}
		if cmd.Flags().Changed("input") {
			var err error
			if t.Input, err = command.Input(cmd, input); err != nil {
				return err
			}
		}
		if !wait {
			return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
				run, err := client.TriggerRun(ctx, t)
				if err != nil {
					return err
				}
				return c.runs.Print(run)
			})(cmd, args)
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			run, err := client.TriggerRun(ctx, t)
			if err != nil {
				return err
			}
			return c.runs.Await(ctx, client, run.GetId())
		})(cmd, args)
	}
	return cmd
}
