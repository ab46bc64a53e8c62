package alert

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var ruleColumns = []string{"name", "severity", "events", "jobs", "labels", "owners", "group by", "channels", "escalates to", "description"}

func ruleRecord(r *sdk.AlertRule) output.Record {
	return output.Message(r, func() []output.Cell {
		return []output.Cell{
			{Text: r.GetName()},
			{Text: r.GetSeverity()},
			{Text: strings.Join(r.GetEvents(), ", ")},
			{Text: strings.Join(r.GetSelect().GetJobs(), ", ")},
			{Text: labelsText(r.GetSelect().GetLabels())},
			{Text: strings.Join(r.GetSelect().GetOwners(), ", ")},
			{Text: strings.Join(r.GetGroupBy(), ", ")},
			{Text: strings.Join(r.GetChannels(), ", ")},
			{Text: strings.Join(r.GetEscalate().GetChannels(), ", ")},
			{Text: r.GetDescription()},
		}
	})
}

func (c *commands) rules() *cobra.Command {
	return &cobra.Command{
		Use:   "rules",
		Short: "List the rules of an app by name",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			rules, err := client.AlertRules(ctx, c.App)
			if err != nil {
				return err
			}
			return printListed(ctx, c, client, ruleColumns, rules, ruleRecord)
		}),
	}
}

var channelColumns = []string{"name", "kind", "language", "zone", "secrets", "description"}

// channelRecord has no address in its table: some have a key in them, and a table is what people show each other.
func channelRecord(ch *sdk.AlertChannel) output.Record {
	return output.Message(ch, func() []output.Cell {
		return []output.Cell{
			{Text: ch.GetName()},
			{Text: string(definition.KindOf(ch))},
			{Text: string(definition.LanguageOf(ch))},
			{Text: ch.GetZone()},
			{Text: strings.Join(definition.SecretsOf(ch), ", ")},
			{Text: ch.GetDescription()},
		}
	})
}

func (c *commands) channels() *cobra.Command {
	return &cobra.Command{
		Use:   "channels",
		Short: "List the channels of an app by name",
		Long: `List the channels of an app by name. The table has no addresses, because some have a key
in them; the other forms of the output have them.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			channels, err := client.AlertChannels(ctx, c.App)
			if err != nil {
				return err
			}
			return printListed(ctx, c, client, channelColumns, channels, channelRecord)
		}),
	}
}
