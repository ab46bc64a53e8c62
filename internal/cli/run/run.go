package run

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/runview"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about runs.
type commands struct {
	*output.Printer
	*connect.Server
	runs runview.Viewer
}

// Command returns the command "run".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server, runview.Viewer{Printer: printer, Server: server}}
	return command.Group("run", "Show runs, read their logs, cancel, retry and delete them",
		c.list(), c.get(), c.logs(), c.wait(), c.cancel(), c.terminate(), c.retry(), c.delete(), c.bulk(), c.explain())
}

func (c *commands) list() *cobra.Command {
	q := sdk.RunQuery{}
	var f filter
	var p payloads
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Long: `List runs, newest first: the live ones, of which a schedule may have made some
ahead of their time, and then those that have ended, in the order of their ends.

--in-input and --in-output find a text in inputs and outputs, --input-value and
--output-value a value in JSON, by its path; a value that ends in * is the beginning of a
text. They read the runs of a time range, so they need --since, and the permission
payload.read.`,
		Example: `  wheelwork run list --job totals --state ended --limit 1
  wheelwork run list --job totals --state unsuccessful --limit 10
  wheelwork run list --since 1h --label team=billing --trigger schedule
  wheelwork run list --since 24h --input-value data.country=DE --limit 0
  wheelwork run list --parent 01K9… --state unsuccessful`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return command.Usage(cmd, "--limit %d: want a number, or 0 for all", q.Limit)
			}
			if err := f.parse(cmd); err != nil {
				return err
			}
			if err := p.set(cmd, &q); err != nil {
				return err
			}
			q.App, q.Job, q.State, q.Host, q.Triggers, q.Labels, q.Since, q.Until = c.App, f.job, f.state, f.host, f.triggers, f.labels, f.since, f.until
			n, unreadable := 0, 0
			q.Unreadable = func(blocks int) { unreadable += blocks }
			columns := []string{"id", "job", "state", "trigger", "planned at", "took", "attempt", "host", "error"}
			err := c.PrintAll(columns, output.Records(connect.Counted(client.Runs(ctx, q), &n), func(run *sdk.Run) output.Record {
				return output.Message(run, func() []output.Cell { return rowOf(run) })
			}))
			if unreadable > 0 {
				c.Note("warning: the list lacks runs: %d damaged blocks of the history were passed over, each of up to 256 runs; the server's log names them, and `wheelwork store repair` on the stopped server says what is lost", unreadable)
			}
			if err == nil && n == 0 {
				c.Note("%s", connect.WhyEmpty(ctx, client, c.App, q.Job))
			}
			return err
		}),
	}
	f.flags(cmd, "only runs in this `STATE`, or live, or ended, or unsuccessful")
	p.flags(cmd)
	cmd.Flags().StringVar(&q.Parent, "parent", "", "only the parts of the run with this `ID`, or the runs of its nodes, in their order")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "show at most this many; 0 for all")
	return cmd
}

func rowOf(run *sdk.Run) []output.Cell {
	return []output.Cell{
		{Text: run.GetId()},
		{Text: run.GetJob()},
		{Text: run.GetState(), Tint: output.StateTint(run.GetState())},
		{Text: run.GetTrigger()},
		{Text: output.Time(run.GetPlannedAt())},
		{Text: runview.Took(run)},
		{Text: runview.Attempt(run)},
		{Text: run.GetHost()},
		{Text: run.GetError()},
	}
}

func (c *commands) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a run with its input, output and attempts",
		Args:  command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			run, err := client.Run(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.runs.Print(run)
		}),
	}
}

func (c *commands) logs() *cobra.Command {
	q := sdk.LogQuery{}
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the log of a run",
		Args:  command.Arguments("ID"),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			q.App, q.Run = c.App, args[0]
			return output.PrintStream(c.Printer, client.Logs(ctx, q), c.lineText, func(line *sdk.LogLine) output.Record {
				return output.Message(line, nil)
			})
		}),
	}
	cmd.Flags().BoolVar(&q.Follow, "follow", false, "continue until the run has ended")
	cmd.Flags().Int64Var(&q.From, "from", 0, "begin at the line with this offset")
	return cmd
}

// lineText formats a line of a log for people.
func (c *commands) lineText(line *sdk.LogLine) string {
	text := line.GetText()
	if output.IsTerminal(c.Out) {
		text = output.Printable(text)
	}
	at := line.GetTime().AsTime().Local().Format("15:04:05.000")
	tint := output.None
	switch line.GetLevel() {
	case "error":
		tint = output.Red
	case "warn":
		tint = output.Yellow
	case "debug":
		tint = output.Faint
	}
	return c.Paint(c.Out, output.Faint, at) + " " + c.Paint(c.Out, tint, output.Pad(line.GetLevel(), 5)) + " " + text
}

func (c *commands) wait() *cobra.Command {
	return &cobra.Command{
		Use:     "wait ID",
		Short:   "Wait for the end of a run and print it; exit code 1 unless it succeeded",
		Example: `  wheelwork run wait 01K9… --timeout 5m`,
		Args:    command.Arguments("ID"),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.runs.Await(ctx, client, args[0])
		}),
	}
}

func (c *commands) cancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "End a run: at once before it starts, else as soon as its host confirms",
		Args:  command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			run, err := client.Cancel(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.runs.Print(run)
		}),
	}
}

func (c *commands) terminate() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "terminate ID",
		Short: "End a run even if its host does not confirm",
		Long: `Cancel a run, wait for its end for --grace, and then end it although its host has not
confirmed. The run is stopped, and what the host reports of it later is ignored. The
handler may still be running: use this for a host that does not react.`,
		Example: `  wheelwork run terminate 01K9… --grace 1m`,
		Args:    command.Arguments("ID"),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			if grace < 0 {
				return command.Usage(cmd, "--grace %s: want a time of at least 0s", grace)
			}
			run, err := client.Terminate(ctx, c.App, args[0], grace)
			if err != nil {
				return err
			}
			return c.runs.Print(run)
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", 10*time.Second, "`time` in which the host may end the run itself, at most 10m")
	return cmd
}

func (c *commands) retry() *cobra.Command {
	var wait bool
	with := sdk.RunRetry{}
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Repeat a run that has ended, with the same input",
		Long: `Repeat a run that has ended, with the same input and the definition that the job has
now. Of a run with parts, only the parts that did not succeed are repeated, and of a
workflow the nodes that did not succeed and those after them. With --wait the exit code
is 1 unless the new run succeeded.

--from-node names a node of a workflow that is repeated with all nodes after it, even if
they succeeded. --module takes another version or alias of the job's module for this one
run, and --host binds the run to one host, by its id.`,
		Example: `  wheelwork run retry 01K9… --wait
  wheelwork run retry 01K9… --from-node check
  wheelwork run retry 01K9… --module totals@1.4 --host 3f2a…
  wheelwork run list --state unsuccessful -o jsonl | jq -r .id | xargs -n1 wheelwork run retry`,
		Args: command.Arguments("ID"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the new run")
	cmd.Flags().StringVar(&with.FromNode, "from-node", "", "of a workflow: repeat this node and all nodes after it")
	cmd.Flags().StringVar(&with.Module, "module", "", "another version or alias of the job's module for this run, as name@version")
	cmd.Flags().StringVar(&with.Host, "host", "", "the id of the only host that may execute the run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		connected := c.Call
		if wait {
			connected = c.Wait
		}
		return connected(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			with.App, with.Run = c.App, args[0]
			run, err := client.RetryRunWith(ctx, with)
			switch {
			case err != nil:
				return err
			case wait:
				return c.runs.Await(ctx, client, run.GetId())
			}
			return c.runs.Print(run)
		})(cmd, args)
	}
	return cmd
}

func (c *commands) explain() *cobra.Command {
	return &cobra.Command{
		Use:     "explain ID",
		Short:   "Explain the state of a run, and for each host whether it may take the run",
		Example: `  wheelwork run explain 01K9…`,
		Args:    command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			why, err := client.ExplainRun(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.PrintOne([]string{"state", "why", "hosts"}, output.Message(why, func() []output.Cell {
				return []output.Cell{{Text: why.GetState(), Tint: output.StateTint(why.GetState())}, {Text: why.GetWhy()}, {Text: verdictsText(why.GetHosts())}}
			}))
		}),
	}
}

func verdictsText(hosts []*sdk.HostVerdict) string {
	var lines []string
	for _, h := range hosts {
		name := h.GetHost()
		if h.GetName() != "" && h.GetName() != name {
			name += " (" + h.GetName() + ")"
		}
		lines = append(lines, name+": "+cmp.Or(h.GetWhy(), "may take it"))
	}
	return strings.Join(lines, "\n")
}
