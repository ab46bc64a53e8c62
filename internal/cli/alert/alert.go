package alert

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about alerts.
type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "alert".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	cmd := command.Group("alert", "Show, acknowledge and silence alerts, preview and test channels, follow deliveries",
		c.list(), c.acknowledge(), c.silence(), c.preview(), c.test(), c.deliveries(), c.retry(), c.rules(), c.channels())
	cmd.Long = cmd.Short + `.

A rule says which events become alerts, and a channel where notifications go. Both are
documents: "wheelwork apply" creates and changes them, "wheelwork explain alertrule" and
"wheelwork explain alertchannel" describe them.`
	return cmd
}

var alertColumns = []string{"id", "severity", "rule", "labels", "event", "count", "since", "notified", "acknowledged by", "silenced until"}

func alertRecord(a *sdk.Alert) output.Record {
	return output.Message(a, func() []output.Cell {
		return []output.Cell{
			{Text: a.GetId()},
			{Text: a.GetSeverity(), Tint: severityTint(a.GetSeverity())},
			{Text: a.GetRule()},
			{Text: labelsText(a.GetLabels())},
			{Text: a.GetEvent()},
			{Text: strconv.FormatInt(a.GetCount(), 10)},
			{Text: output.Time(a.GetSince())},
			{Text: output.Time(a.GetNotifiedAt())},
			{Text: a.GetAcknowledgedBy()},
			{Text: output.Time(a.GetSilencedUntil())},
		}
	})
}

func severityTint(severity string) output.Tint {
	switch severity {
	case "critical", "error":
		return output.Red
	case "warning":
		return output.Yellow
	}
	return output.None
}

// labelsText writes labels in the order of their names.
func labelsText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, " ")
}

func (c *commands) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the alerts that fire, newest first",
		Example: `  wheelwork alert list
  wheelwork alert list --app shop -o jsonl | jq '.incidents[-1].error'`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			alerts, err := client.Alerts(ctx, c.App)
			if err != nil {
				return err
			}
			return printListed(ctx, c, client, alertColumns, alerts, alertRecord)
		}),
	}
}

// printListed prints a list, and tells if it is empty because the app's name is mistyped.
func printListed[T any](ctx context.Context, c *commands, client *sdk.Client, columns []string, list []T, convert func(T) output.Record) error {
	if err := c.PrintAll(columns, output.Each(list, convert)); err != nil || len(list) > 0 {
		return err
	}
	c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
	return nil
}

func (c *commands) acknowledge() *cobra.Command {
	return &cobra.Command{
		Use:   "ack ID",
		Short: "Acknowledge an alert: it is neither repeated nor escalated",
		Long: `Acknowledge an alert: you take care of it, so it is neither repeated nor escalated. Its
resolve message is sent. An alert that was acknowledged before keeps the first name.`,
		Args:              command.Arguments("ID"),
		ValidArgsFunction: c.completeFirst(alertIDs),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			a, err := client.AcknowledgeAlert(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.PrintOne(alertColumns, alertRecord(a))
		}),
	}
}

// names returns names or ids that the server knows.
type names func(ctx context.Context, client *sdk.Client, app string) ([]string, error)

func alertIDs(ctx context.Context, client *sdk.Client, app string) ([]string, error) {
	alerts, err := client.Alerts(ctx, app)
	return namesOf(alerts, (*sdk.Alert).GetId), err
}

func silenceIDs(ctx context.Context, client *sdk.Client, app string) ([]string, error) {
	silences, err := client.AlertSilences(ctx, app)
	return namesOf(silences, (*sdk.AlertSilence).GetId), err
}

func ruleNames(ctx context.Context, client *sdk.Client, app string) ([]string, error) {
	rules, err := client.AlertRules(ctx, app)
	return namesOf(rules, (*sdk.AlertRule).GetName), err
}

func channelNames(ctx context.Context, client *sdk.Client, app string) ([]string, error) {
	channels, err := client.AlertChannels(ctx, app)
	return namesOf(channels, (*sdk.AlertChannel).GetName), err
}

func namesOf[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = name(x)
	}
	return out
}

// completeFirst completes the only argument of a command in the shell.
func (c *commands) completeFirst(known names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		var found []string
		if len(args) == 0 {
			c.Timeout = time.Second
			_ = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
				list, err := known(ctx, client, c.App)
				found = slices.DeleteFunc(list, func(name string) bool { return !strings.HasPrefix(name, prefix) })
				return err
			})(cmd, args) // a shell cannot show an error
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the values of a flag in the shell.
func (c *commands) completeFlag(cmd *cobra.Command, flag string, known names) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c.completeFirst(known)); err != nil {
		panic(fmt.Sprintf("complete --%s of %s: %v", flag, cmd.Name(), err)) // the flag is misspelt in this program
	}
}
