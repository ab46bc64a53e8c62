package app

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// pauseText describes a pause; empty for none.
func pauseText(p *sdk.AppPause) string {
	if p == nil {
		return ""
	}
	text := "until it is resumed"
	if p.Until != nil {
		text = "until " + p.Until.AsTime().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func (c *commands) pauseApp() *cobra.Command {
	var p sdk.Pause
	var until string
	var lasts time.Duration
	var all bool
	cmd := &cobra.Command{
		Use:   "pause APP | --all",
		Short: "Let an app start nothing, until a time or until it is resumed",
		Long: `Pause an app from now on, or replace its pause. A paused app starts nothing: its planned times
are skipped, and runs show the reason. Triggered runs and retries are accepted and wait for the
end. Attempts that hosts have go on. --all pauses each app that exists now.`,
		Example: `  wheelwork app pause shop --for 2h --reason "the database moves"
  wheelwork app pause shop --until 2026-12-24T18:00:00Z
  wheelwork app pause --all --reason "maintenance of the cluster"`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&until, "until", "", "end of the pause, as `TIME` (RFC 3339); default: until it is resumed")
	cmd.Flags().DurationVar(&lasts, "for", 0, "the pause ends after this `DURATION`, as 2h")
	cmd.Flags().StringVar(&p.Reason, "reason", "", "why, as `TEXT` of at most 500 bytes")
	cmd.Flags().BoolVar(&all, "all", false, "pause all apps")
	cmd.MarkFlagsMutuallyExclusive("until", "for")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) == 1) {
			return command.Usage(cmd, "want the name of an app, or --all")
		}
		switch {
		case until != "":
			at, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return command.Usage(cmd, "--until %q: want a time as 2026-12-24T18:00:00Z", until)
			}
			p.Until = at
		case lasts < 0 || cmd.Flags().Changed("for") && lasts == 0:
			return command.Usage(cmd, "--for %s: want a positive duration", lasts)
		case lasts > 0:
			p.Until = time.Now().Add(lasts)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.each(ctx, client, args, func(name string) (*sdk.App, error) { return client.PauseApp(ctx, name, p) })
		})(cmd, args)
	}
	return cmd
}

func (c *commands) resumeApp() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "resume APP | --all",
		Short:   "End the pause of an app",
		Example: "  wheelwork app resume shop\n  wheelwork app resume --all",
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&all, "all", false, "resume all apps")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) == 1) {
			return command.Usage(cmd, "want the name of an app, or --all")
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.each(ctx, client, args, func(name string) (*sdk.App, error) { return client.ResumeApp(ctx, name) })
		})(cmd, args)
	}
	return cmd
}

// each changes the named app, or all apps if none is named, and prints them. It goes on after the
// failure of one.
func (c *commands) each(ctx context.Context, client *sdk.Client, args []string, change func(name string) (*sdk.App, error)) error {
	if len(args) == 1 {
		app, err := change(args[0])
		if err != nil {
			return err
		}
		return c.PrintOne(appColumns, appRecord(app))
	}
	apps, err := client.Apps(ctx)
	if err != nil {
		return err
	}
	var changed []*sdk.App
	var failed error
	for _, a := range apps {
		now, err := change(a.GetName())
		if err != nil {
			failed = errors.Join(failed, err) // it names the app
			continue
		}
		changed = append(changed, now)
	}
	return errors.Join(c.PrintAll(appColumns, output.Each(changed, appRecord)), failed)
}
