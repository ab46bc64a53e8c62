package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var previewColumns = []string{"channel", "kind", "language", "event", "title", "request", "headers", "body", "html", "note"}

func previewRecord(p *sdk.AlertPreview) output.Record {
	return output.Message(p, func() []output.Cell {
		return []output.Cell{
			{Text: p.GetChannel()},
			{Text: p.GetKind()},
			{Text: p.GetLanguage()},
			{Text: p.GetEvent()},
			{Text: p.GetTitle()},
			{Text: strings.TrimSpace(p.GetMethod() + " " + p.GetUrl())},
			{Text: headersText(p.GetHeaders())},
			{Text: bodyText(p.GetBody())},
			{Text: p.GetHtml()},
			{Text: p.GetNote(), Tint: output.Yellow},
		}
	})
}

func headersText(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// bodyText breaks JSON into lines; another text stays as it is.
func bodyText(body string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(body), "", "  ") != nil {
		return body
	}
	return b.String()
}

func (c *commands) preview() *cobra.Command {
	var event, language string
	cmd := &cobra.Command{
		Use:   "preview CHANNEL",
		Short: "Show what a channel would send, without sending it",
		Long: `Show what a channel would send for an example of an event: the request, the mail or the
input of its command. Nothing is sent and no secret is opened: keys are left out, and a
signature is made with an example of a key.`,
		Example: `  wheelwork alert preview ops
  wheelwork alert preview ops --event recovered --language zh -o json | jq -r .body`,
		Args:              command.Arguments("CHANNEL"),
		ValidArgsFunction: c.completeFirst(channelNames),
	}
	cmd.Flags().StringVar(&event, "event", "failed", "`event` of the example; recovered is the resolve message")
	cmd.Flags().StringVar(&language, "language", "", "language of the example, en or zh (default that of the channel)")
	command.Complete(cmd, "event", definition.Events()...)
	command.Complete(cmd, "language", "en", "zh")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !slices.Contains(definition.Events(), event):
			return command.Usage(cmd, "--event %q: want one of %s", event, strings.Join(definition.Events(), ", "))
		case language != "" && language != "en" && language != "zh":
			return command.Usage(cmd, "--language %q: want en or zh", language)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			p, err := client.PreviewAlert(ctx, c.App, args[0], event, language)
			if err != nil {
				return err
			}
			return c.PrintOne(previewColumns, previewRecord(p))
		})(cmd, args)
	}
	return cmd
}
