package job

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// pauseFlags are the flags for the reason and the end of a pause.
type pauseFlags struct {
	reason, until string
}

func (p *pauseFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.until, "until", "", "the server resumes the jobs at this `TIME` (RFC 3339), or after this duration, as 2h; default: until they are resumed")
	cmd.Flags().StringVar(&p.reason, "reason", "", "why, as `TEXT` of at most 500 bytes")
}

// pause returns the pause that the flags describe.
func (p *pauseFlags) pause(cmd *cobra.Command) (sdk.Pause, error) {
	pause := sdk.Pause{Reason: p.reason}
	if p.until == "" {
		return pause, nil
	}
	if lasts, err := time.ParseDuration(p.until); err == nil && lasts > 0 {
		pause.Until = time.Now().Add(lasts)
		return pause, nil
	}
	at, err := time.Parse(time.RFC3339, p.until)
	if err != nil {
		return pause, command.Usage(cmd, "--until %q: want a time as 2026-12-24T18:00:00Z, or a duration as 2h", p.until)
	}
	pause.Until = at
	return pause, nil
}

func (c *commands) pause() *cobra.Command {
	var p pauseFlags
	cmd := &cobra.Command{
		Use:   "pause JOB",
		Short: "Keep the schedule of a job from firing, until a time or until it is resumed",
		Long: `Pause a job, or replace its pause. Its schedule, its dependency and its trigger start no
run, and triggered runs still work. With --until the server resumes the job by itself.`,
		Example: `  wheelwork job pause totals
  wheelwork job pause totals --until 2h --reason "the database moves"
  wheelwork job pause totals --until 2026-12-24T18:00:00Z`,
		Args:              command.Arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
	}
	p.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pause, err := p.pause(cmd)
		if err != nil {
			return err
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			job, err := client.PauseJob(ctx, c.App, args[0], pause)
			if err != nil {
				return err
			}
			return c.printJob(job)
		})(cmd, args)
	}
	return cmd
}

// pausedText says that a job is paused, until when, and why.
func pausedText(job *sdk.Job) string {
	if !job.GetPaused() {
		return ""
	}
	text := "paused"
	if until := job.GetPause().GetUntil(); until != nil {
		text += " until " + until.AsTime().Format(time.RFC3339)
	}
	if reason := job.GetPause().GetReason(); reason != "" {
		text += ": " + reason
	}
	return text
}
