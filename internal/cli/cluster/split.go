package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) split() *cobra.Command {
	var partitions int
	var auto, wait bool
	cmd := &cobra.Command{
		Use:   "split APP",
		Short: "Spread the jobs of an app over several partitions",
		Long: `Spread the jobs of an app over several units, so that several servers schedule
them. They move in sixteen slices, each of which stands still for a moment, while
everything goes on. Jobs that refer to each other stay where the app began. The
balancer leaves the app alone then, until --auto.`,
		Example: `  wheelwork cluster split shop --wait
  wheelwork cluster split shop --units 3
  wheelwork cluster split shop --auto`,
		Args: command.Arguments("APP"),
	}
	cmd.Flags().IntVar(&partitions, "units", 0, "over how many `partitions` (default all)")
	cmd.Flags().BoolVar(&auto, "auto", false, "leave it to the balancer again, which goes by the app's rate")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the jobs are where they are to be")
	cmd.RunE = c.placing(&wait, func(ctx context.Context, client *sdk.Client, app string) (*sdk.Cluster, error) {
		switch {
		case auto && partitions != 0:
			return nil, command.Usage(cmd, "--auto and --units exclude each other")
		case auto:
			return client.BalanceApp(ctx, app)
		}
		return client.SplitApp(ctx, app, partitions)
	})
	return cmd
}

func (c *commands) merge() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "merge APP",
		Short: "Bring the jobs of an app together in one partition",
		Long: `Bring the jobs of an app back into the unit where it began. The balancer leaves the
app alone then, until "wheelwork cluster split APP --auto".`,
		Example: `  wheelwork cluster merge shop --wait`,
		Args:    command.Arguments("APP"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the jobs are there")
	cmd.RunE = c.placing(&wait, func(ctx context.Context, client *sdk.Client, app string) (*sdk.Cluster, error) {
		return client.MergeApp(ctx, app)
	})
	return cmd
}

// placing changes the desired placement of an app's jobs, and optionally waits until the
// jobs have moved.
func (c *commands) placing(wait *bool, decide func(context.Context, *sdk.Client, string) (*sdk.Cluster, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		run := c.Call
		if *wait {
			run = c.Wait
		}
		return run(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := decide(ctx, client, args[0])
			for err == nil && *wait && !placed(s, args[0]) {
				if err = sleep(ctx, 200*time.Millisecond); err == nil {
					s, err = client.Cluster(ctx)
				}
			}
			if err != nil {
				return err
			}
			return c.showCluster(s)
		})(cmd, args)
	}
}

// placed reports whether the jobs of an app have their desired placement.
func placed(s *sdk.Cluster, app string) bool {
	return !slices.ContainsFunc(s.GetSplit(), func(x *sdk.SplitApp) bool {
		return x.GetApp() == app && slices.ContainsFunc(x.GetShares(), func(sh *sdk.AppShare) bool { return sh.GetSlots() != sh.GetWanted() })
	})
}
