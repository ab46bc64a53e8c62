package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) runCommand() *cobra.Command {
	return group("run", "Look at runs, read their logs, cancel and retry them",
		c.runList(), c.runGet(), c.runLogs(), c.runWait(), c.runCancel(), c.runRetry(), c.runExplain())
}

func (c *cli) runList() *cobra.Command {
	q := sdk.RunQuery{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Example: `  wheelwork run list --job totals --state unsuccessful --limit 10
  wheelwork run list --parent 01K9… --state unsuccessful`,
		Args: arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return usage(cmd, "--limit %d: want a number, or 0 for all", q.Limit)
			}
			q.App = c.app
			unreadable := 0
			q.Unreadable = func(blocks int) { unreadable += blocks }
			columns := []string{"id", "job", "state", "trigger", "planned at", "took", "attempt", "host", "error"}
			err := c.printAll(columns, records(client.Runs(ctx, q), func(run *sdk.Run) record {
				return message(run, func() []cell { return runRow(run) })
			}))
			if unreadable > 0 {
				c.note("warning: the list lacks runs: %d damaged blocks of the history were passed over, each of up to 256 runs; the server's log names them, and `wheelwork store repair` on the stopped server says what is lost", unreadable)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&q.Job, "job", "", "only runs of this job")
	cmd.Flags().StringVar(&q.State, "state", "", "only runs in this state, or live, or unsuccessful")
	cmd.Flags().StringVar(&q.Host, "host", "", "only runs on this host")
	cmd.Flags().StringVar(&q.Parent, "parent", "", "only the parts of the run with this `ID`, or the runs of its nodes, in their order")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "show at most this many; 0 for all")
	return cmd
}

func runRow(run *sdk.Run) []cell {
	return []cell{
		{run.GetId(), none},
		{run.GetJob(), none},
		{run.GetState(), stateTint(run.GetState())},
		{run.GetTrigger(), none},
		{moment(run.GetPlannedAt()), none},
		{took(run), none},
		{attemptText(run), none},
		{run.GetHost(), none},
		{run.GetError(), none},
	}
}

// took returns the time from the first start to the end; empty until the end.
func took(run *sdk.Run) string {
	if run.GetStartedAt() == nil || run.GetFinishedAt() == nil {
		return ""
	}
	return run.GetFinishedAt().AsTime().Sub(run.GetStartedAt().AsTime()).Round(time.Millisecond).String()
}

// attemptText returns the number of the attempt and the maximum. It is empty without an
// attempt, as for workflows and fan-outs, whose nodes and parts have the attempts.
func attemptText(run *sdk.Run) string {
	switch {
	case run.GetAttempt() == 0:
		return ""
	case run.GetMaxAttempts() == 0:
		return fmt.Sprint(run.GetAttempt())
	}
	return fmt.Sprintf("%d/%d", run.GetAttempt(), run.GetMaxAttempts())
}

func (c *cli) runGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a run with its input, output and attempts",
		Args:  arguments("ID"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			run, err := client.Run(ctx, c.app, args[0])
			if err != nil {
				return err
			}
			return c.printRun(run)
		}),
	}
}

func (c *cli) printRun(run *sdk.Run) error {
	columns := []string{
		"id", "app", "job", "state", "trigger", "cause", "node", "part of", "parts", "covers", "planned at", "started at", "finished at", "took", "attempt", "next attempt",
		"host", "alias", "module", "handler", "digest", "progress", "error", "code", "trace", "attempts", "nodes", "input", "output",
	}
	return c.printOne(columns, message(run, func() []cell {
		tint := stateTint(run.GetState())
		return []cell{
			{run.GetId(), none},
			{run.GetApp(), none},
			{run.GetJob(), none},
			{run.GetState(), tint},
			{run.GetTrigger(), none},
			{run.GetCause(), none},
			{run.GetNode(), none},
			{partText(run), none},
			{partsText(run), none},
			{coversText(run.GetCovers()), none},
			{moment(run.GetPlannedAt()), none},
			{moment(run.GetStartedAt()), none},
			{moment(run.GetFinishedAt()), none},
			{took(run), none},
			{attemptText(run), none},
			{moment(run.GetNextAttemptAt()), none},
			{run.GetHost(), none},
			{run.GetAlias(), none},
			{run.GetModule(), none},
			{run.GetHandler(), none},
			{run.GetDigest(), none},
			{progressText(run.GetProgress()), none},
			{run.GetError(), red},
			{run.GetCode(), none},
			{run.GetTrace(), none},
			{attemptsText(run.GetAttempts()), none},
			{nodesText(run.GetNodes()), none},
			{inputText(run.GetInput(), run.GetInputBytes()), none},
			{inputText(run.GetOutput(), run.GetOutputBytes()), none},
		}
	}))
}

// partText names the run of which this run is a part.
func partText(run *sdk.Run) string {
	if run.GetParent() == "" {
		return ""
	}
	return fmt.Sprintf("%s, number %d of 0 to %d", run.GetParent(), run.GetPart(), run.GetParts()-1)
}

// partsText summarizes the states of a run's parts.
func partsText(run *sdk.Run) string {
	if run.GetParts() == 0 || run.GetParent() != "" {
		return ""
	}
	return fmt.Sprintf("%d: %d succeeded, %d did not, %d are live", run.GetParts(), run.GetPartsSucceeded(), run.GetPartsFailed(),
		run.GetParts()-run.GetPartsSucceeded()-run.GetPartsFailed())
}

func coversText(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d more planned times that passed", n)
}

func progressText(p *sdk.Progress) string {
	switch {
	case p == nil:
		return ""
	case p.GetTotal() > 0:
		return strings.TrimSpace(fmt.Sprintf("%d of %d %s", p.GetDone(), p.GetTotal(), p.GetMessage()))
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", p.GetDone(), p.GetMessage()))
}

// attemptsText lists the attempts if there was more than one.
func attemptsText(attempts []*sdk.Attempt) string {
	if len(attempts) < 2 {
		return ""
	}
	var lines []string
	for _, a := range attempts {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d %s on %s %s", a.GetNumber(), cmp.Or(a.GetOutcome(), "running"), a.GetHost(), a.GetError())))
	}
	return strings.Join(lines, "\n")
}

func (c *cli) runLogs() *cobra.Command {
	q := sdk.LogQuery{}
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the log of a run",
		Args:  arguments("ID"),
		RunE: c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			q.App, q.Run = c.app, args[0]
			return c.printLog(ctx, client, q)
		}),
	}
	cmd.Flags().BoolVar(&q.Follow, "follow", false, "go on until the run has ended")
	cmd.Flags().Int64Var(&q.From, "from", 0, "begin at the line with this offset")
	return cmd
}

// printLog prints each line at once, without buffering.
func (c *cli) printLog(ctx context.Context, client *sdk.Client, q sdk.LogQuery) error {
	if c.format == formatJSON {
		return c.printAll(nil, records(client.Logs(ctx, q), func(line *sdk.LogLine) record { return message(line, nil) }))
	}
	first := true
	for line, err := range client.Logs(ctx, q) {
		if err != nil {
			return err
		}
		if c.format == formatTable {
			fmt.Fprintln(c.out, c.logText(line))
			continue
		}
		if c.format == formatYAML && !first {
			fmt.Fprintln(c.out, "---")
		}
		first = false
		if err := c.writeOne(c.out, nil, message(line, nil)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) logText(line *sdk.LogLine) string {
	text := line.GetText()
	if terminal(c.out) {
		text = printable(text)
	}
	at := line.GetTime().AsTime().Local().Format("15:04:05.000")
	tint := none
	switch line.GetLevel() {
	case "error":
		tint = red
	case "warn":
		tint = yellow
	case "debug":
		tint = faint
	}
	return c.paint(c.out, faint, at) + " " + c.paint(c.out, tint, pad(line.GetLevel(), 5)) + " " + text
}

func (c *cli) runWait() *cobra.Command {
	return &cobra.Command{
		Use:     "wait ID",
		Short:   "Wait for the end of a run and print it; exit code 1 unless it succeeded",
		Example: `  wheelwork run wait 01K9… --timeout 5m`,
		Args:    arguments("ID"),
		RunE: c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.await(ctx, client, args[0])
		}),
	}
}

// await waits for the end of a run, prints it, and fails unless it succeeded.
func (c *cli) await(ctx context.Context, client *sdk.Client, id string) error {
	state := "accepted"
	told := c.tellWaits(ctx, client, id)
	defer told.stop()
	for run, err := range client.Watch(ctx, c.app, id) {
		switch {
		case err == nil:
			state = run.GetState()
			told.state(state)
			c.follow(run)
			continue
		case errors.Is(err, context.DeadlineExceeded):
			c.followed()
			why := ""
			if state == "queued" {
				why = fmt.Sprintf(", or see with \"wheelwork run explain %s\" why no host has it", id)
			}
			return &codedError{"deadline_exceeded", fmt.Sprintf("run %s is still %s after %v and goes on: wait again with \"wheelwork run wait %s\"%s", id, state, c.timeout, id, why)}
		case errors.Is(err, context.Canceled):
			c.followed()
			return &codedError{"canceled", fmt.Sprintf("interrupted; run %s goes on: wait again with \"wheelwork run wait %s\" or end it with \"wheelwork run cancel %s\"", id, id, id)}
		}
		c.followed()
		return err
	}
	c.followed()
	told.stop()
	run, err := client.Run(ctx, c.app, id)
	if err != nil {
		return err
	}
	if err := c.printRun(run); err != nil {
		return err
	}
	if run.GetState() == sdk.Succeeded {
		return nil
	}
	return &codedError{"run_" + run.GetState(), fmt.Sprintf("run %s %s", id, ended(run))}
}

// ended describes the end of an unsuccessful run.
func ended(run *sdk.Run) string {
	text := map[string]string{
		"failed": "failed", "timed_out": "timed out", "stopped": "was stopped", "cancelled": "was cancelled before it started",
		"skipped": "was skipped", "missed": "was missed",
	}[run.GetState()]
	text = cmp.Or(text, "ended as "+run.GetState())
	if run.GetError() != "" {
		text += ": " + run.GetError()
	}
	return text
}

func (c *cli) runCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "End a run: at once before it starts, else as soon as its host confirms",
		Args:  arguments("ID"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			run, err := client.Cancel(ctx, c.app, args[0])
			if err != nil {
				return err
			}
			return c.printRun(run)
		}),
	}
}

func (c *cli) runRetry() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Run again what has ended, with the same input",
		Long: `Run again what has ended, with the same input and the definition that the job
has now. Of a run with parts that did not succeed only these are made anew.
With --wait the exit code is 1 unless the new run succeeded.`,
		Example: `  wheelwork run retry 01K9… --wait
  wheelwork run list --state unsuccessful -o jsonl | jq -r .id | xargs -n1 wheelwork run retry`,
		Args: arguments("ID"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the new run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		connected := c.call
		if wait {
			connected = c.wait
		}
		return connected(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			run, err := client.RetryRun(ctx, c.app, args[0])
			switch {
			case err != nil:
				return err
			case wait:
				return c.await(ctx, client, run.GetId())
			}
			return c.printRun(run)
		})(cmd, args)
	}
	return cmd
}

func (c *cli) runExplain() *cobra.Command {
	return &cobra.Command{
		Use:     "explain ID",
		Short:   "Say why a run is where it is, and of each host why it may or may not take it",
		Example: `  wheelwork run explain 01K9…`,
		Args:    arguments("ID"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			why, err := client.ExplainRun(ctx, c.app, args[0])
			if err != nil {
				return err
			}
			return c.printOne([]string{"state", "why", "hosts"}, message(why, func() []cell {
				return []cell{{why.GetState(), stateTint(why.GetState())}, {why.GetWhy(), none}, {verdictsText(why.GetHosts()), none}}
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
