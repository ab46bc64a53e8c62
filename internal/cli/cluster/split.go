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
		Long: `Spread the jobs of an app over several partitions, so that several servers schedule
them. They move in sixteen slots; each slot pauses for a moment, and the others
continue. Jobs that refer to each other stay in the primary partition of the app. The
balancer does not move the app afterwards, until --auto.`,
		Example: `  wheelwork cluster split shop --wait
  wheelwork cluster split shop --units 3
  wheelwork cluster split shop --auto`,
		Args: command.Arguments("APP"),
	}
	cmd.Flags().IntVar(&partitions, "units", 0, "number of `partitions` (default all)")
	cmd.Flags().BoolVar(&auto, "auto", false, "let the balancer place the app again, by its rate")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the jobs have moved")
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
		Short: "Move the jobs of an app to one partition",
		Long: `Move the jobs of an app back to its primary partition. The balancer does not move the
app afterwards, until "wheelwork cluster split APP --auto".`,
		Example: `  wheelwork cluster merge shop --wait`,
		Args:    command.Arguments("APP"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the jobs have moved")
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
