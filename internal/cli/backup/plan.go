package backup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the backups that the servers make by themselves, and their last drill",
		Long: `Show the backups that the servers make by themselves (server --backup-dir): the plan, the
last backup that was verified, the last drill, and the files in the directory. A drill
restores a backup to a temporary directory, and opens the result as a server would.`,
		Example: "  wheelwork backup list -o json",
		Args:    command.Arguments(),
	}
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
		p, err := client.Backups(ctx)
		if err != nil {
			return err
		}
		return c.printPlan(p)
	})
	return cmd
}

func (c *commands) now() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "now",
		Short: "Let a server make a backup now, to its directory for backups",
		Long: `Let the server that makes the backups (server --backup-dir) make one now, with its drill, and
wait for the result. Ctrl-C ends the wait and not the backup.`,
		Example: "  wheelwork backup now",
		Args:    command.Arguments(),
	}
	cmd.RunE = c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
		p, err := client.StartBackup(ctx)
		if err != nil {
			return err
		}
		began := p.GetRunningSince().AsTime()
		c.Note("%s makes a backup", cmp.Or(p.GetAddress(), p.GetServer()))
		for p.GetRunningSince() != nil {
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
			if p, err = client.Backups(ctx); err != nil {
				return err
			}
		}
		if p.GetLast() == nil || p.GetLast().GetMadeAt().AsTime().Before(began) {
			return command.Fail("unavailable", "the server has made no backup: %s", cmp.Or(p.GetError(), "it ended, or another one makes the backups now"))
		}
		return c.printPlan(p)
	})
	return cmd
}

// lookEvery is how often the command looks whether a backup has ended.
const lookEvery = 500 * time.Millisecond

// printPlan prints the plan, and for people the files below it.
func (c *commands) printPlan(p *sdk.BackupPlan) error {
	if p.GetServer() == "" {
		c.Note("no server makes backups by itself: start a server with --backup-dir DIR --backup-at \"30 2 * * *\"")
	}
	if p.GetServer() == "" && c.Format == output.Table {
		return nil
	}
	yes := map[bool]string{true: "yes", false: "no"}
	columns := []string{"directory", "server", "schedule", "next at", "keeps", "encrypts", "running since", "last backup", "made at", "bytes", "took", "drill", "restored", "overdue", "error"}
	err := c.PrintOne(columns, output.Message(p, func() []output.Cell {
		last, drill := p.GetLast(), p.GetDrill()
		result := cmp.Or(drill.GetResult(), "none")
		if drill.GetReason() != "" {
			result += ": " + drill.GetReason()
		}
		restored := ""
		if drill.GetResult() == "passed" {
			restored = fmt.Sprintf("%d jobs, %d live and %d ended runs, %d modules", drill.GetJobs(), drill.GetLiveRuns(), drill.GetEndedRuns(), drill.GetModules())
		}
		took := ""
		if last != nil {
			took = last.GetEndedAt().AsTime().Sub(last.GetMadeAt().AsTime()).Round(time.Millisecond).String()
		}
		return []output.Cell{
			{Text: p.GetDirectory()},
			{Text: cmp.Or(p.GetAddress(), p.GetServer())},
			{Text: cmp.Or(p.GetSchedule(), "none")},
			{Text: local(p.GetNextAt().AsTime())},
			{Text: fmt.Sprint(p.GetKeep())},
			{Text: yes[p.GetEncrypted()]},
			{Text: local(p.GetRunningSince().AsTime())},
			{Text: last.GetFile()},
			{Text: local(last.GetMadeAt().AsTime())},
			{Text: fmt.Sprint(last.GetBytes())},
			{Text: took},
			{Text: result},
			{Text: restored},
			{Text: yes[p.GetOverdue()]},
			{Text: p.GetError()},
		}
	}))
	if err != nil || c.Format != output.Table || len(p.GetFiles()) == 0 {
		return err
	}
	fmt.Fprintln(c.Out)
	return c.PrintAll([]string{"file", "bytes", "made at"}, output.Each(p.GetFiles(), func(f *sdk.BackupFile) output.Record {
		return output.Message(f, func() []output.Cell {
			return []output.Cell{{Text: f.GetName()}, {Text: fmt.Sprint(f.GetBytes())}, {Text: local(f.GetMadeAt().AsTime())}}
		})
	}))
}

// local formats a time for people; "" for none, which is the beginning of Unix time.
func local(t time.Time) string {
	if t.Unix() == 0 {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}
