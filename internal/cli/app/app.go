package app

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about apps, and about their calendars, values and secrets.
type commands struct {
	*output.Printer
	*connect.Server
}

// Commands returns the commands "app", "calendar", "kv" and "secret".
func Commands(printer *output.Printer, server *connect.Server) []*cobra.Command {
	c := &commands{printer, server}
	return []*cobra.Command{
		command.Group("app", "List apps, set their limits, pause and delete them", c.listApps(), c.getApp(), c.setApp(), c.limitApp(), c.pauseApp(), c.resumeApp(), c.deleteApp()),
		command.Group("calendar", "Manage sets of dates that schedules include or exclude",
			c.putCalendar(), c.getCalendar(), c.listCalendars(), c.deleteCalendar()),
		command.Group("kv", "Show and change the values that handlers store", c.getValue(), c.putValue(), c.listValues(), c.deleteValue()),
		command.Group("secret", "Store secrets for handlers; no command shows their values", c.setSecret(), c.listSecrets(), c.deleteSecret(), c.keyFile(), c.reseal()),
	}
}

var appColumns = []string{"name", "jobs", "live runs", "rate", "weight", "kv quota", "retention", "enqueue from", "description", "signed by", "paused"}

func appRecord(app *sdk.App) output.Record {
	return output.Message(app, func() []output.Cell {
		return []output.Cell{
			{Text: app.GetName()},
			{Text: strconv.FormatInt(app.GetJobs(), 10)},
			{Text: strconv.FormatInt(app.GetLive(), 10)},
			{Text: output.Rate(app.GetRate().GetMax(), app.GetRate().GetPer())},
			{Text: weightText(app.GetWeight())},
			{Text: quotaText(app.GetKvBytes())},
			{Text: retentionText(app)},
			{Text: strings.Join(app.GetEnqueueFrom(), ", ")},
			{Text: app.GetDescription()},
			{Text: signedBy(app)},
			{Text: pauseText(app.GetPause())},
		}
	})
}

// weightText returns a weight as text; empty for the default.
func weightText(weight int32) string {
	if weight == 0 {
		return ""
	}
	return strconv.Itoa(int(weight))
}

// quotaText returns a quota as text; empty for the default.
func quotaText(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return output.Bytes(bytes)
}

// retentionText describes the retention of an app; empty for that of the server.
func retentionText(app *sdk.App) string {
	var parts []string
	if r := app.GetRetainRuns(); r != "" {
		parts = append(parts, "runs "+r)
	}
	if r := app.GetRetainLogs(); r != "" {
		parts = append(parts, "logs "+r)
	}
	if n := app.GetRevisionBytes(); n > 0 {
		parts = append(parts, "revisions "+output.Bytes(n))
	}
	return strings.Join(parts, ", ")
}

// signedBy describes the signatures that an app requires.
func signedBy(app *sdk.App) string {
	switch {
	case app.GetRequireSigned():
		return strings.Join(app.GetTrustedKeys(), ", ")
	case len(app.GetTrustedKeys()) > 0:
		return "not required: " + strings.Join(app.GetTrustedKeys(), ", ")
	}
	return ""
}

func (c *commands) listApps() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the apps of the server",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			apps, err := client.Apps(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(appColumns, output.Each(apps, appRecord))
		}),
	}
}

func (c *commands) getApp() *cobra.Command {
	return &cobra.Command{
		Use:   "get APP",
		Short: "Show an app",
		Args:  command.Arguments("APP"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			app, err := client.App(ctx, args[0])
			if err != nil {
				return err
			}
			columns, record := withLimits(app)
			return c.PrintOne(columns, record)
		}),
	}
}

func (c *commands) setApp() *cobra.Command {
	var rate, description, quota, runs, logs, revisions string
	var from, trust, untrust []string
	var signed bool
	var weight int32
	cmd := &cobra.Command{
		Use:   "set APP",
		Short: "Set the limits of an app, or describe it",
		Long: `Set the limits of an app: how often all its jobs together start, and how much its
handlers may store, and how long its runs stay. Give it a larger share of the hosts, name the other apps that
may enqueue its jobs, require signed modules, or describe it. Settings without a
flag do not change.`,
		Example: `  wheelwork app set shop --rate 100/1s
  wheelwork app set shop --weight 3 --retain-runs 2160h
  wheelwork app set shop --require-signed --trust ed25519:k3y...
  wheelwork app set shop --rate none --description "orders and bills"`,
		Args: command.Arguments("APP"),
	}
	cmd.Flags().StringVar(&rate, "rate", "", "most starts in a period, as `N/TIME`: 100/1s, 5/1m; none: no limit")
	cmd.Flags().Int32Var(&weight, "weight", 0, "share of the hosts' time beside other apps that want it, 1 to 1000 (default 1)")
	cmd.Flags().StringVar(&quota, "kv-quota", "", "most bytes of the keys and values of the app, as `SIZE`: 512KiB, 64MiB, 1GiB")
	cmd.Flags().StringVar(&runs, "retain-runs", "", "`time` for which ended runs stay, as 720h; none: as the server says")
	cmd.Flags().StringVar(&logs, "retain-logs", "", "`time` for which lines of runs stay, as 24h; none: as the server says")
	cmd.Flags().StringVar(&revisions, "revision-bytes", "", "most bytes on disk of the revisions of the app's definitions, as `SIZE`, at least 64KiB; none: 256MiB")
	cmd.Flags().StringSliceVar(&from, "enqueue-from", nil, "`APP`s whose handlers may enqueue jobs of this one, if a grant allows it; none: no other app")
	cmd.Flags().StringVar(&description, "description", "", "what the app is for")
	cmd.Flags().BoolVar(&signed, "require-signed", false, "accept and run only modules that a trusted key has signed")
	cmd.Flags().StringArrayVar(&trust, "trust", nil, "public `key` to trust: ed25519:…; may be repeated")
	cmd.Flags().StringArrayVar(&untrust, "untrust", nil, "public `key` to remove from the trusted ones; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.ContainsFunc([]string{"rate", "weight", "description", "kv-quota", "retain-runs", "retain-logs", "revision-bytes", "enqueue-from", "require-signed", "trust", "untrust"}, cmd.Flags().Changed) {
			return command.Usage(cmd, "say what to set: --rate, --weight, --kv-quota, --retain-runs, --retain-logs, --revision-bytes, --enqueue-from, --description, --require-signed, --trust or --untrust")
		}
		var bound *sdk.Rate
		if rate != "" && rate != "none" {
			count, per, ok := strings.Cut(rate, "/")
			n, err := strconv.ParseInt(count, 10, 32)
			if !ok || err != nil || n < 1 {
				return command.Usage(cmd, "--rate %q: want a number and a time, as 100/1s, or none", rate)
			}
			bound = &sdk.Rate{Max: int32(n), Per: per}
		}
		if cmd.Flags().Changed("weight") && (weight < 1 || weight > 1000) {
			return command.Usage(cmd, "--weight %d: want 1 to 1000", weight)
		}
		var bytes int64
		if quota != "" {
			var err error
			if bytes, err = command.Size(quota); err != nil {
				return command.Usage(cmd, "--kv-quota %q: %s", quota, err)
			}
		}
		var history int64
		if revisions != "" && revisions != "none" {
			var err error
			if history, err = command.Size(revisions); err != nil {
				return command.Usage(cmd, "--revision-bytes %q: %s", revisions, err)
			}
		}
		if slices.Equal(from, []string{"none"}) {
			from = nil
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
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
			if cmd.Flags().Changed("weight") {
				app.Weight = weight
			}
			if cmd.Flags().Changed("kv-quota") {
				app.KvBytes = bytes
			}
			if cmd.Flags().Changed("revision-bytes") {
				app.RevisionBytes = history
			}
			for flag, field := range map[string]*string{"retain-runs": &app.RetainRuns, "retain-logs": &app.RetainLogs} {
				if text, _ := cmd.Flags().GetString(flag); text == "none" {
					*field = ""
				} else if text != "" {
					*field = text
				}
			}
			if cmd.Flags().Changed("enqueue-from") {
				app.EnqueueFrom = from
			}
			if cmd.Flags().Changed("description") {
				app.Description = description
			}
			if cmd.Flags().Changed("require-signed") {
				app.RequireSigned = signed
			}
			for _, key := range trust {
				if !slices.Contains(app.TrustedKeys, key) {
					app.TrustedKeys = append(app.TrustedKeys, key)
				}
			}
			app.TrustedKeys = slices.DeleteFunc(app.TrustedKeys, func(key string) bool { return slices.Contains(untrust, key) })
			if app, err = client.PutApp(ctx, app); err != nil {
				return err
			}
			return c.PrintOne(appColumns, appRecord(app))
		})(cmd, args)
	}
	return cmd
}

func (c *commands) deleteApp() *cobra.Command {
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "delete APP",
		Short: "Delete an app with everything in it",
		Long: `Delete an app: its modules, aliases, calendars, secrets, grants, values and settings. Its
ended runs and their lines are no longer shown; their space on the disk is free when
retention removes the files. An app that has jobs or live runs is refused. With --force
its jobs are deleted and its live runs cancelled first; the command waits until the hosts
have confirmed that. Use "run terminate" for a run whose host does not confirm. A command
that was interrupted can be repeated.`,
		Example: `  wheelwork app delete trial
  wheelwork app delete trial --force --yes`,
		Args: command.Arguments("APP"),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			app, err := client.App(ctx, args[0])
			if err != nil {
				return err
			}
			if !yes {
				question := "Delete app " + app.GetName() + " with everything in it"
				if force {
					question += ", also " + command.Count(app.GetJobs(), "job") + " and " + command.Count(app.GetLive(), "live run")
				}
				if err := command.Confirm(cmd, question); err != nil {
					return err
				}
			}
			total := app.GetJobs() + app.GetLive()
			bar := c.Progress(max(total, 1), "jobs and runs", false)
			err = client.DeleteApp(ctx, app.GetName(), sdk.AppDeletion{
				Force:    force,
				Progress: func(jobs, live int64) { bar.Reached(max(total-jobs-live, 0)) },
			})
			bar.End()
			if err != nil {
				return err
			}
			c.Note("app %s: deleted", app.GetName())
			return nil
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "first delete the jobs and cancel the live runs")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
