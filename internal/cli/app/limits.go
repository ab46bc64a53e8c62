package app

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// limit is one limit of an app.
type limit struct {
	flag, column, usage string
	bytes               bool
	set                 func(*sdk.AppLimits) *int64
	used                func(*sdk.App) int64
}

var limits = []limit{
	{
		"jobs", "jobs limit", "most jobs", false,
		func(l *sdk.AppLimits) *int64 { return &l.Jobs }, (*sdk.App).GetJobs,
	},
	{
		"queued-runs", "queued runs limit", "most runs that have not ended", false,
		func(l *sdk.AppLimits) *int64 { return &l.QueuedRuns }, (*sdk.App).GetLive,
	},
	{
		"live-runs", "live runs limit", "most runs that hosts have at the same time; the others wait", false,
		func(l *sdk.AppLimits) *int64 { return &l.LiveRuns }, (*sdk.App).GetAtHosts,
	},
	{
		"bytes", "bytes limit", "most bytes of the definitions of jobs and the inputs of runs that have not ended", true,
		func(l *sdk.AppLimits) *int64 { return &l.Bytes }, (*sdk.App).GetBytes,
	},
	{
		"module-bytes", "module bytes limit", "most bytes of stored modules", true,
		func(l *sdk.AppLimits) *int64 { return &l.ModuleBytes }, (*sdk.App).GetModuleBytes,
	},
}

// text returns the use of a limit, as "12 of 2000000".
func (x limit) text(app *sdk.App) string {
	most, used := *x.set(app.GetLimits()), x.used(app)
	switch {
	case most == 0:
		return strconv.FormatInt(used, 10) + ", no limit"
	case x.bytes:
		return output.Bytes(used) + " of " + output.Bytes(most)
	}
	return strconv.FormatInt(used, 10) + " of " + strconv.FormatInt(most, 10)
}

// withLimits returns the columns and the record of an app with the use of its limits.
func withLimits(app *sdk.App) ([]string, output.Record) {
	if app.Limits == nil { // from a server without limits
		return appColumns, appRecord(app)
	}
	columns, record := append([]string(nil), appColumns...), appRecord(app)
	row := record.Row
	for _, x := range limits {
		columns = append(columns, x.column)
	}
	record.Row = func() []output.Cell {
		cells := row()
		for _, x := range limits {
			cells = append(cells, output.Cell{Text: x.text(app)})
		}
		return cells
	}
	return columns, record
}

func (c *commands) limitApp() *cobra.Command {
	texts := make([]string, len(limits))
	cmd := &cobra.Command{
		Use:   "limits APP",
		Short: "Limit what an app may take, to protect the others",
		Long: `Set the limits of an app: its jobs, its runs, and the bytes that it stores. A limit without
a flag does not change. Without any flag the command shows the limits and their use.
A limit may be lower than what the app has: then it keeps that, and gets no more.
Only an administrator of the cluster sets limits, not one of the app.`,
		Example: `  wheelwork app limits shop
  wheelwork app limits shop --jobs 100000 --live-runs 50
  wheelwork app limits shop --module-bytes 1GiB --jobs default`,
		Args: command.Arguments("APP"),
	}
	for i, x := range limits {
		unit := "`N`"
		if x.bytes {
			unit = "`SIZE`"
		}
		cmd.Flags().StringVar(&texts[i], x.flag, "", x.usage+", as "+unit+"; default: that of the server")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		values := make([]int64, len(limits))
		changes := false
		for i, x := range limits {
			if texts[i] == "" && !cmd.Flags().Changed(x.flag) {
				continue
			}
			changes = true
			if texts[i] == "default" {
				continue
			}
			n, err := strconv.ParseInt(texts[i], 10, 64)
			if x.bytes {
				n, err = command.Size(texts[i])
			}
			if err != nil || n < 1 {
				return command.Usage(cmd, "--%s %q: want a positive number or default", x.flag, texts[i])
			}
			values[i] = n
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			app, err := client.App(ctx, args[0])
			if err != nil && (!changes || !errors.Is(err, sdk.ErrNotFound)) {
				return err
			}
			if changes {
				to := app.GetLimits()
				if to == nil {
					to = &sdk.AppLimits{}
				}
				for i, x := range limits {
					if cmd.Flags().Changed(x.flag) {
						*x.set(to) = values[i]
					}
				}
				if app, err = client.SetAppLimits(ctx, args[0], to); err != nil {
					return err
				}
			}
			columns, record := withLimits(app)
			return c.PrintOne(columns, record)
		})(cmd, args)
	}
	return cmd
}
