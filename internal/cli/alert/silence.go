package alert

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var silenceColumns = []string{"id", "rule", "labels", "from", "until", "reason", "created by"}

func silenceRecord(s *sdk.AlertSilence) output.Record {
	return output.Message(s, func() []output.Cell {
		return []output.Cell{
			{Text: s.GetId()},
			{Text: s.GetRule()},
			{Text: labelsText(s.GetLabels())},
			{Text: output.Time(s.GetFrom())},
			{Text: output.Time(s.GetUntil())},
			{Text: s.GetReason()},
			{Text: s.GetCreatedBy()},
		}
	})
}

// silence begins a silence, and contains the commands about silences.
func (c *commands) silence() *cobra.Command {
	var s sdk.Silence
	cmd := command.Group("silence", "Keep alerts from being told for a time; or list and end silences", c.listSilences(), c.endSilence())
	cmd.Use = "silence --for TIME"
	cmd.Long = `Keep alerts from being told for a time. Resolve messages of alerts that were told are
sent. An alert that still fires when the silence ends is told then.

A label is one of the group of an alert, as "wheelwork alert list" shows them: a rule
with "group_by: [job]" has the label job.`
	cmd.Example = `  wheelwork alert silence --rule failures --label job=nightly --for 2h --reason "the disk is replaced"
  wheelwork alert silence list
  wheelwork alert silence end silence-abc`
	flags := cmd.Flags()
	flags.StringVar(&s.Rule, "rule", "", "only alerts of this rule (default of all rules)")
	flags.StringToStringVar(&s.Labels, "label", nil, "only alerts with this label, as `KEY=VALUE`; may be repeated, and then all must match")
	flags.DurationVar(&s.For, "for", 0, "`time` from now, as 30m or 2h")
	flags.StringVar(&s.Reason, "reason", "", "`text` for people, at most 500 bytes")
	c.completeFlag(cmd, "rule", ruleNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return command.Unknown(cmd, args[0])
		case !cmd.Flags().Changed("for"):
			return command.Usage(cmd, "--for is missing: say how long, as 30m or 2h")
		case s.For < time.Second:
			return command.Usage(cmd, "--for %v: want at least 1s", s.For)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			s.App = c.App
			made, err := client.SilenceAlerts(ctx, s)
			if err != nil {
				return err
			}
			return c.PrintOne(silenceColumns, silenceRecord(made))
		})(cmd, args)
	}
	return cmd
}

func (c *commands) listSilences() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the silences that have not ended, the one that ends first first",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			silences, err := client.AlertSilences(ctx, c.App)
			if err != nil {
				return err
			}
			return printListed(ctx, c, client, silenceColumns, silences, silenceRecord)
		}),
	}
}

func (c *commands) endSilence() *cobra.Command {
	return &cobra.Command{
		Use:               "end ID",
		Short:             "End a silence: alerts that still fire are told",
		Args:              command.Arguments("ID"),
		ValidArgsFunction: c.completeFirst(silenceIDs),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.EndSilence(ctx, c.App, args[0]); err != nil {
				return err
			}
			c.Note("silence %s: ended", args[0])
			return nil
		}),
	}
}
