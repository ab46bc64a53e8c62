package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) appCommand() *cobra.Command {
	return group("app", "See the apps that there are, and bound them", c.appList(), c.appGet(), c.appSet())
}

var appColumns = []string{"name", "jobs", "live runs", "rate", "description"}

func appRecord(app *sdk.App) record {
	return message(app, func() []cell {
		return []cell{
			{app.GetName(), none},
			{strconv.FormatInt(app.GetJobs(), 10), none},
			{strconv.FormatInt(app.GetLive(), 10), none},
			{rateText(app.GetRate()), none},
			{app.GetDescription(), none},
		}
	})
}

func (c *cli) appList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the apps of the server",
		Args:  arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			apps, err := client.Apps(ctx)
			if err != nil {
				return err
			}
			return c.printAll(appColumns, func(yield func(record, error) bool) {
				for _, app := range apps {
					if !yield(appRecord(app), nil) {
						return
					}
				}
			})
		}),
	}
}

func (c *cli) appGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get APP",
		Short: "Show an app",
		Args:  arguments("APP"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			app, err := client.App(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printOne(appColumns, appRecord(app))
		}),
	}
}

func (c *cli) appSet() *cobra.Command {
	var rate, description string
	cmd := &cobra.Command{
		Use:   "set APP",
		Short: "Bound an app, or describe it",
		Long: `Bound how often the jobs of an app start, all of them together, or describe the
app. What is not named stays as it is.`,
		Example: `  wheelwork app set shop --rate 100/1s
  wheelwork app set shop --rate none --description "orders and bills"`,
		Args: arguments("APP"),
	}
	cmd.Flags().StringVar(&rate, "rate", "", "starts in a time, as `N/TIME`: 100/1s, 5/1m; none: no limit")
	cmd.Flags().StringVar(&description, "description", "", "what the app is for")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("rate") && !cmd.Flags().Changed("description") {
			return usage(cmd, "say what to set: --rate or --description")
		}
		var bound *sdk.Rate
		if rate != "" && rate != "none" {
			count, per, ok := strings.Cut(rate, "/")
			n, err := strconv.ParseInt(count, 10, 32)
			if !ok || err != nil || n < 1 {
				return usage(cmd, "--rate %q: want a number and a time, as 100/1s, or none", rate)
			}
			bound = &sdk.Rate{Max: int32(n), Per: per}
		}
		return c.call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			app, err := client.App(ctx, args[0])
			if err != nil && !errors.Is(err, sdk.ErrNotFound) {
				return err
			}
			if app == nil {
				app = &sdk.App{Name: args[0]}
			}
			if cmd.Flags().Changed("rate") {
				app.Rate = bound
			}
			if cmd.Flags().Changed("description") {
				app.Description = description
			}
			if app, err = client.PutApp(ctx, app); err != nil {
				return err
			}
			return c.printOne(appColumns, appRecord(app))
		})(cmd, args)
	}
	return cmd
}
