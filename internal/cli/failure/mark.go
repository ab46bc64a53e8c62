package failure

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var markColumns = []string{"fingerprint", "state", "job", "marked by", "marked at", "until", "note"}

func markRecord(m *sdk.ErrorMark) output.Record {
	return output.Message(m, func() []output.Cell {
		return []output.Cell{
			{Text: m.GetFingerprint()},
			{Text: m.GetState()},
			{Text: m.GetJob()},
			{Text: m.GetMarkedBy()},
			{Text: output.Time(m.GetMarkedAt())},
			{Text: output.Time(m.GetUntil())},
			{Text: m.GetNote()},
		}
	})
}

// markFlags adds the flags of a new mark.
func markFlags(cmd *cobra.Command, e *sdk.ErrorToMark) {
	cmd.Flags().StringVar(&e.Note, "reason", "", "`text` for people, at most 500 bytes")
	cmd.Flags().StringVar(&e.Job, "job", "", "`JOB` whose runs have the error, for people")
}

func (c *commands) acknowledge() *cobra.Command {
	var e sdk.ErrorToMark
	cmd := &cobra.Command{
		Use:   "ack FINGERPRINT",
		Short: "Acknowledge a kind of error: you have seen it",
		Long: `Acknowledge a kind of error: you have seen it. It stays in the list, with your name. When
it occurs again the list says so.`,
		Example: `  wheelwork error ack 0123456789abcdef --reason "the gateway is repaired"`,
		Args:    command.Arguments("FINGERPRINT"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			e.App, e.Fingerprint = c.App, args[0]
			m, err := client.AcknowledgeError(ctx, e)
			if err != nil {
				return err
			}
			return c.PrintOne(markColumns, markRecord(m))
		}),
	}
	markFlags(cmd, &e)
	return cmd
}

func (c *commands) ignore() *cobra.Command {
	var e sdk.ErrorToMark
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "ignore FINGERPRINT",
		Short: "Ignore a kind of error: lists leave it out, for a time or until it is cleared",
		Example: `  wheelwork error ignore 0123456789abcdef --for 48h --reason "the partner repairs it"
  wheelwork error clear 0123456789abcdef`,
		Args: command.Arguments("FINGERPRINT"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			var until time.Time
			if cmd.Flags().Changed("for") {
				if duration < time.Second {
					return command.Usage(cmd, "--for %v: want at least 1s", duration)
				}
				until = time.Now().Add(duration)
			}
			e.App, e.Fingerprint = c.App, args[0]
			m, err := client.IgnoreError(ctx, e, until)
			if err != nil {
				return err
			}
			return c.PrintOne(markColumns, markRecord(m))
		}),
	}
	markFlags(cmd, &e)
	cmd.Flags().DurationVar(&duration, "for", 0, "`time` from now, as 30m or 48h (default until the mark is cleared)")
	return cmd
}

func (c *commands) marks() *cobra.Command {
	return &cobra.Command{
		Use:   "marks",
		Short: "List the kinds of errors that are acknowledged or ignored, the newest mark first",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			marks, err := client.ErrorMarks(ctx, c.App)
			if err != nil {
				return err
			}
			if err := c.PrintAll(markColumns, output.Each(marks, markRecord)); err != nil || len(marks) > 0 {
				return err
			}
			c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
			return nil
		}),
	}
}

func (c *commands) clear() *cobra.Command {
	return &cobra.Command{
		Use:   "clear FINGERPRINT",
		Short: "Clear the mark of a kind of error: it is neither acknowledged nor ignored",
		Args:  command.Arguments("FINGERPRINT"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.ClearErrorMark(ctx, c.App, args[0]); err != nil {
				return err
			}
			c.Note("error %s: cleared", args[0])
			return nil
		}),
	}
}
