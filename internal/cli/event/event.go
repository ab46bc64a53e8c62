// Package event has the commands about events of other programs.
package event

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// keyVariable is the variable with the key of an event source.
const keyVariable = "WHEELWORK_EVENT_KEY"

// commands are the commands about events.
type commands struct {
	*output.Printer
	*connect.Server
	getenv func(string) string
}

// Command returns the command "event".
func Command(printer *output.Printer, server *connect.Server, getenv func(string) string) *cobra.Command {
	c := &commands{printer, server, getenv}
	cmd := command.Group("event", "Send events that start jobs, and list event sources", c.send(), c.sources())
	cmd.Long = cmd.Short + `.

An event source admits the events of one sender, and a job with a trigger is started by those that
fit. Both are documents: "wheelwork apply" creates and changes them, "wheelwork explain eventsource"
and "wheelwork explain job.trigger" describe them.`
	return cmd
}

func (c *commands) send() *cobra.Command {
	var source, keyFile, data string
	e := sdk.Event{}
	cmd := &cobra.Command{
		Use:   "send --source NAME --type T",
		Short: "Send an event, and print the runs that it has started",
		Long: `Send an event of CloudEvents, signed with the key of an event source, and print the runs that
it has started. The key is "whsec_" and base64. No token is needed.

An event that is sent again with the same id starts nothing again, and has the same runs.`,
		Example: `  wheelwork event send --source shop --key-file shop.key --type com.example.order.paid --data '{"order": 17}'
  wheelwork event send --source shop --type com.example.order.paid --data @order.json --id order-17`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			key, err := c.key(keyFile)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("data") {
				text, err := command.Input(cmd, data)
				if err != nil {
					return err
				}
				if !json.Valid(text) {
					return command.Fail("usage", "--data is no JSON: a text has quotes, as '\"hello\"'")
				}
				e.Data = json.RawMessage(text)
			}
			e.ID, e.Time = cmp.Or(e.ID, rand.Text()), time.Now().UTC()
			runs, err := client.PublishEvent(ctx, c.App, source, key, e)
			if errors.Is(err, sdk.ErrUnauthenticated) { // there is no token to blame
				return command.Fail("unauthenticated", "send event: %s", refusal(err))
			}
			if err != nil {
				return err
			}
			if len(runs) == 0 {
				c.Note("event %s started no job: none has a trigger that fits, or they are paused", e.ID)
			}
			return c.PrintAll([]string{"run"}, output.Each(runs, func(id string) output.Record {
				return output.Object(map[string]string{"run": id}, func() []output.Cell { return []output.Cell{{Text: id}} })
			}))
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&source, "source", "", "the `name` of the event source")
	flags.StringVar(&keyFile, "key-file", "", "`file` with the key of the event source, or "+keyVariable+" with the key itself")
	flags.StringVar(&e.Type, "type", "", "the type of the event, as com.example.order.paid")
	flags.StringVar(&e.Source, "from", "/wheelwork/cli", "what the event says that it comes from")
	flags.StringVar(&e.Subject, "subject", "", "what the event is about")
	flags.StringVar(&e.ID, "id", "", "the id of the event (default a random one)")
	flags.StringVar(&data, "data", "", "the data as JSON, @FILE, or @- for standard input")
	_ = cmd.MarkFlagRequired("source") // the flags exist
	_ = cmd.MarkFlagRequired("type")
	return cmd
}

// refusal returns the message of the server.
func refusal(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// key returns the key of the event source.
func (c *commands) key(file string) (string, error) {
	key := c.getenv(keyVariable)
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		key = string(text)
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", command.Fail("usage", "the key of the event source is missing: name its file with --key-file, or set %s", keyVariable)
	}
	return key, nil
}

var sourceColumns = []string{"name", "secret", "previous", "types", "rate", "paused", "description"}

func sourceRecord(s *sdk.EventSource) output.Record {
	return output.Message(s, func() []output.Cell {
		paused := ""
		if s.GetPaused() {
			paused = "paused"
		}
		return []output.Cell{
			{Text: s.GetName()},
			{Text: s.GetSecret().GetSecret()},
			{Text: s.GetPrevious().GetSecret()},
			{Text: strings.Join(s.GetTypes(), ", ")},
			{Text: strconv.Itoa(int(cmp.Or(s.GetRate(), 100))) + "/s"},
			{Text: paused, Tint: output.Yellow},
			{Text: s.GetDescription()},
		}
	})
}

func (c *commands) sources() *cobra.Command {
	return &cobra.Command{
		Use:   "sources",
		Short: "List the event sources of an app by name",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			sources, err := client.EventSources(ctx, c.App)
			if err != nil {
				return err
			}
			if err := c.PrintAll(sourceColumns, output.Each(sources, sourceRecord)); err != nil || len(sources) > 0 {
				return err
			}
			c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
			return nil
		}),
	}
}
