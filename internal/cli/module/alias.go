package module

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) alias() *cobra.Command {
	var canary, percent, failure, window string
	var attempts int32
	var end, remove, force, ready bool
	cmd := &cobra.Command{
		Use:   "alias [[APP/]NAME [ALIAS [VERSION]]]",
		Short: "Point a name at a version of a module, with or without a canary",
		Long: `Point ALIAS at VERSION: jobs whose handler names NAME@ALIAS run that version from
then on. A run keeps the version that the alias had when the run was accepted, also
for retries. Without VERSION the command shows the alias and its last changes,
without ALIAS it lists all aliases.

A canary gets a share of the runs, selected by their ids. When more than a share of
its attempts fail within a window, the server rolls it back.`,
		Example: `  wheelwork module alias totals prod 3
  wheelwork module alias totals prod --canary 4 --percent 5 --max-failure 2% --window 15m
  wheelwork module alias totals prod 4 --when-ready
  wheelwork module alias shop/totals`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return command.Usage(cmd, "unexpected argument %q", args[3])
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&canary, "canary", "", "`version` to try as a canary")
	flags.StringVar(&percent, "percent", "10", "percentage of the runs for the canary, above 0 and below 100")
	flags.StringVar(&failure, "max-failure", "10%", "share of the canary's attempts that may fail, as 10% or 0.1")
	flags.Int32Var(&attempts, "min-attempts", 20, "attempts before the server judges the canary")
	flags.StringVar(&window, "window", "10m", "period whose attempts count, 1m to 24h")
	flags.BoolVar(&end, "end-canary", false, "end the canary; the alias keeps its version")
	flags.BoolVar(&ready, "when-ready", false, "wait until all hosts of the app have the version ready, then switch")
	flags.BoolVar(&remove, "remove", false, "remove the alias; one that jobs name stays")
	flags.BoolVar(&force, "force", false, "with --remove: also an alias that jobs name; their runs fail until it is set again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if app, name, ok := strings.Cut(args[0], "/"); ok {
				c.App, args[0] = app, name
			}
		}
		change := sdk.AliasChange{EndCanary: end, WhenReady: ready}
		if len(args) == 3 {
			change.Version = args[2]
		}
		changes := change.Version != "" || canary != "" || end
		switch {
		case len(args) < 2 && (changes || remove):
			return command.Usage(cmd, "ALIAS is missing")
		case remove && changes:
			return command.Usage(cmd, "--remove excludes every other change")
		case force && !remove:
			return command.Usage(cmd, "--force needs --remove")
		case ready && !changes:
			return command.Usage(cmd, "--when-ready needs a VERSION or a --canary")
		case canary != "" && end:
			return command.Usage(cmd, "--canary and --end-canary: choose one")
		}
		if canary != "" {
			p, err := share(percent, "%")
			if err != nil {
				return command.Usage(cmd, "--percent %q: want a number, as 5 or 5%%", percent)
			}
			f, err := share(failure, "")
			if err != nil {
				return command.Usage(cmd, "--max-failure %q: want a share, as 10%% or 0.1", failure)
			}
			change.Canary = &sdk.Canary{Version: canary, Percent: p, MinAttempts: attempts, MaxFailure: f, Window: window}
		}
		do := c.Call
		if ready {
			do = c.Wait
		}
		return do(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			if len(args) < 2 {
				return c.listAliases(ctx, client, strings.Join(args, ""))
			}
			ref := args[0] + "@" + args[1]
			switch {
			case remove:
				drop := client.DeleteAlias
				if force {
					drop = client.ForceDeleteAlias
				}
				if err := drop(ctx, c.App, ref); err != nil {
					return err
				}
				c.Note("%s: removed", ref)
				return nil
			case changes:
				return c.setAlias(ctx, client, ref, change)
			}
			x, err := client.Alias(ctx, c.App, ref)
			if err != nil {
				return err
			}
			return c.printAlias(x)
		})(cmd, args)
	}
	return cmd
}

// share parses "5%" as a percentage, and "5" as a percentage or as a share: percent is
// "%" when a bare number is a percentage.
func share(text, percent string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if err == nil && isPercent && percent == "" {
		v /= 100
	}
	return v, err
}

// readyPause is the time between two polls of the hosts.
const readyPause = 300 * time.Millisecond

// setAlias changes an alias. With WhenReady it waits until the hosts are ready.
func (c *commands) setAlias(ctx context.Context, client *sdk.Client, ref string, change sdk.AliasChange) error {
	for told, last := false, false; ; {
		x, refusal := client.SetAlias(ctx, c.App, ref, change)
		if refusal == nil {
			return c.printAlias(x)
		}
		if last || !change.WhenReady || !errors.Is(refusal, sdk.ErrPrecondition) {
			return refusal
		}
		r, err := c.slowest(ctx, client, ref, change)
		switch {
		case err != nil:
			return refusal
		case r == nil: // the hosts became ready meanwhile: the next answer is final
			last = true
			continue
		case !told:
			c.Note("%s@%s: ready on %d of %d hosts, waiting", r.GetName(), r.GetVersion(), r.GetReady(), r.GetHosts())
			told = true
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slowest returns the incomplete roll-out of a version of the change; nil: all are
// complete. Failed hosts, or no hosts at all, are an error, because waiting does not
// help.
func (c *commands) slowest(ctx context.Context, client *sdk.Client, ref string, change sdk.AliasChange) (*sdk.Rollout, error) {
	module, _, _ := strings.Cut(ref, "@")
	for _, version := range []string{change.Version, change.Canary.GetVersion()} {
		if version == "" {
			continue
		}
		r, err := client.Rollout(ctx, c.App, module+"@"+version)
		if err != nil || r.GetComplete() {
			if err != nil {
				return nil, err
			}
			continue
		}
		if r.GetHosts() == 0 {
			return nil, errors.New("there is no host")
		}
		for _, h := range r.GetByHost() {
			if h.GetState() == "failed" {
				return nil, errors.New(h.GetError())
			}
		}
		return r, nil
	}
	return nil, nil
}

func aliasColumns() []string {
	return []string{"alias", "version", "canary", "jobs", "changed at", "last change"}
}

func aliasRecord(x *sdk.Alias) output.Record {
	return output.Message(x, func() []output.Cell {
		last := ""
		if len(x.GetEvents()) > 0 {
			last = eventText(x.GetEvents()[0])
		}
		return []output.Cell{
			{Text: x.GetModule() + "@" + x.GetName()},
			{Text: x.GetVersion()},
			{Text: canaryText(x.GetCanary()), Tint: output.Cyan},
			{Text: strconv.FormatInt(x.GetJobs(), 10)},
			{Text: output.Time(x.GetUpdatedAt())},
			{Text: last},
		}
	})
}

func canaryText(cn *sdk.Canary) string {
	if cn == nil {
		return ""
	}
	return fmt.Sprintf("%s: %v%%, %d of %d failed", cn.GetVersion(), cn.GetPercent(), cn.GetFailed(), cn.GetFailed()+cn.GetSucceeded())
}

func eventText(e *sdk.AliasEvent) string {
	text := e.GetWhat() + " "
	if e.GetFrom() != "" {
		text += e.GetFrom() + " → "
	}
	text += e.GetTo()
	if e.GetWhy() != "" {
		text += ": " + e.GetWhy()
	}
	return text
}

func (c *commands) listAliases(ctx context.Context, client *sdk.Client, module string) error {
	all, err := client.Aliases(ctx, c.App, module)
	if err != nil {
		return err
	}
	return c.PrintAll(aliasColumns(), output.Each(all, aliasRecord))
}

// printAlias shows one alias with its events.
func (c *commands) printAlias(x *sdk.Alias) error {
	r := aliasRecord(x)
	head := r.Row
	r.Row = func() []output.Cell {
		var lines []string
		for _, e := range x.GetEvents() {
			lines = append(lines, output.Time(e.GetAt())+"  "+eventText(e))
		}
		cells := head()
		cells[len(cells)-1] = output.Cell{Text: strings.Join(lines, "\n")}
		return cells
	}
	columns := aliasColumns()
	columns[len(columns)-1] = "changes"
	return c.PrintOne(columns, r)
}
