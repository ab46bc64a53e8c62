package alert

import (
	"cmp"
	"context"
	"fmt"
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

// States of a delivery.
const (
	waiting   = "waiting"
	delivered = "delivered"
)

// states are all states of a delivery.
var states = []string{waiting, delivered, "refused", "given_up", "dropped"}

var deliveryColumns = []string{"id", "channel", "rule", "event", "alert state", "state", "attempts", "created at", "ended at", "next attempt at", "answer", "reason"}

func deliveryRecord(d *sdk.AlertDelivery) output.Record {
	return output.Message(d, func() []output.Cell {
		return []output.Cell{
			{Text: d.GetId()},
			{Text: d.GetChannel()},
			{Text: d.GetRule()},
			{Text: d.GetEvent()},
			{Text: d.GetAlertState()},
			{Text: d.GetState(), Tint: deliveryTint(d.GetState())},
			{Text: strconv.Itoa(int(d.GetAttempts()))},
			{Text: output.Time(d.GetCreatedAt())},
			{Text: output.Time(d.GetEndedAt())},
			{Text: output.Time(d.GetNextAttemptAt())},
			{Text: answerText(d)},
			{Text: d.GetReason()},
		}
	})
}

func deliveryTint(state string) output.Tint {
	switch state {
	case delivered:
		return output.Green
	case waiting:
		return output.Yellow
	}
	return output.Red
}

// answerText is the last answer of a receiver: its status, and the code of its platform; "" before one has come.
func answerText(d *sdk.AlertDelivery) string {
	var parts []string
	if d.GetStatus() != 0 {
		parts = append(parts, strconv.Itoa(int(d.GetStatus())))
	}
	if d.GetCode() != "" {
		parts = append(parts, d.GetCode())
	}
	return strings.Join(parts, " ")
}

func (c *commands) deliveries() *cobra.Command {
	var q sdk.DeliveryQuery
	limit := 50
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "List notifications on their way to channels, newest first",
		Long: `List notifications on their way to channels, newest first: all that wait, and the last
1 000 that have ended. A delivery is delivered, refused by its receiver, given up after
a day of attempts, or dropped because its channel is gone or too many wait.`,
		Example: `  wheelwork alert deliveries --channel ops --state refused
  wheelwork alert deliveries --limit 0 -o jsonl`,
		Args: command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Channel, "channel", "", "only to this channel")
	flags.StringVar(&q.State, "state", "", "only in this `STATE`: "+strings.Join(states, ", "))
	flags.StringVar(&q.Alert, "alert", "", "only of the alert with this `ID`")
	flags.IntVar(&limit, "limit", limit, "show at most this many; 0 for all")
	command.Complete(cmd, "state", states...)
	c.completeFlag(cmd, "channel", channelNames)
	c.completeFlag(cmd, "alert", alertIDs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case limit < 0:
			return command.Usage(cmd, "--limit %d: want a positive number, or 0 for all", limit)
		case q.State != "" && !slices.Contains(states, q.State):
			return command.Usage(cmd, "--state %q: want one of %s", q.State, strings.Join(states, ", "))
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			q.App = c.App
			n, list := 0, client.AlertDeliveries(ctx, q)
			if limit > 0 {
				list = connect.First(list, limit)
			}
			err := c.PrintAll(deliveryColumns, output.Records(connect.Counted(list, &n), deliveryRecord))
			if err == nil && n == 0 {
				c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
			}
			return err
		})(cmd, args)
	}
	return cmd
}

func (c *commands) retry() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID",
		Short: "Queue a delivery again that was refused, given up or dropped",
		Args:  command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			d, err := client.RetryAlertDelivery(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.PrintOne(deliveryColumns, deliveryRecord(d))
		}),
	}
}

// lookEvery is the time between two looks at a delivery.
const lookEvery = 200 * time.Millisecond

func (c *commands) test() *cobra.Command {
	var language string
	wait := 20 * time.Second
	cmd := &cobra.Command{
		Use:   "test CHANNEL",
		Short: "Send an example to a channel, and say what became of it",
		Long: `Send an example to a channel, wait for the answer of its receiver, and print the
delivery. The exit code is 1 unless the example was delivered. The server goes on with
attempts after the wait.`,
		Example: `  wheelwork alert test ops
  wheelwork alert test ops --language zh --wait 0s -o json | jq -r .id`,
		Args:              command.Arguments("CHANNEL"),
		ValidArgsFunction: c.completeFirst(channelNames),
	}
	cmd.Flags().StringVar(&language, "language", "", "language of the example, en or zh (default that of the channel)")
	cmd.Flags().DurationVar(&wait, "wait", wait, "`time` to wait for the end of the delivery; 0s returns at once")
	command.Complete(cmd, "language", "en", "zh")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case wait < 0:
			return command.Usage(cmd, "--wait %v: want 0s or more", wait)
		case language != "" && language != "en" && language != "zh":
			return command.Usage(cmd, "--language %q: want en or zh", language)
		}
		c.Timeout = cmp.Or(c.Timeout, wait+connect.DefaultTimeout)
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			d, err := client.TestAlertChannel(ctx, c.App, args[0], language)
			if err != nil {
				return err
			}
			if wait == 0 {
				return c.PrintOne(deliveryColumns, deliveryRecord(d))
			}
			if d, err = ended(ctx, client, d, wait); err != nil {
				return err
			}
			if err := c.PrintOne(deliveryColumns, deliveryRecord(d)); err != nil {
				return err
			}
			return outcome(d, wait)
		})(cmd, args)
	}
	return cmd
}

// ended waits until a delivery has ended, or for a time, and returns it as it is then.
func ended(ctx context.Context, client *sdk.Client, d *sdk.AlertDelivery, wait time.Duration) (*sdk.AlertDelivery, error) {
	over := time.After(wait)
	for d.GetState() == waiting {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for delivery %s: %w", d.GetId(), ctx.Err())
		case <-over:
			return d, nil
		case <-time.After(lookEvery):
		}
		// An example is an alert of its own, so there is no other delivery of it.
		q := sdk.DeliveryQuery{App: d.GetApp(), Channel: d.GetChannel(), Alert: d.GetAlert()}
		for seen, err := range client.AlertDeliveries(ctx, q) {
			if err != nil {
				return nil, err
			}
			d = seen
		}
	}
	return d, nil
}

// outcome is the error of a command that has waited for a delivery; nil: it was delivered.
func outcome(d *sdk.AlertDelivery, waited time.Duration) error {
	if d.GetState() == delivered {
		return nil
	}
	why := cmp.Or(d.GetReason(), "the receiver gave no reason")
	if answer := answerText(d); answer != "" {
		why += fmt.Sprintf(" (answer %s)", answer)
	}
	code := "delivery_" + d.GetState()
	switch {
	case d.GetState() != waiting:
		return command.Fail(code, "the example for channel %s was %s: %s", d.GetChannel(), strings.ReplaceAll(d.GetState(), "_", " "), why)
	case d.GetAttempts() == 0:
		return command.Fail(code, "the example for channel %s waits after %v without an attempt: see \"wheelwork alert deliveries --channel %s\" for others before it", d.GetChannel(), waited, d.GetChannel())
	}
	return command.Fail(code, "the example for channel %s is not delivered after %v and %s, and the server goes on: %s", d.GetChannel(), waited, command.Count(d.GetAttempts(), "attempt"), why)
}
