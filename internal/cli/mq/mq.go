package mq

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// commands are the commands about logs and the message queue.
type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "mq".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	cmd := command.Group("mq", "Inspect logs and the message queue, repair them, handle dead letters",
		c.stats(), c.peek(), c.tail(), c.verify(), c.repair(), c.dead())
	cmd.Long = cmd.Short + `.

A server has two logs: its journal, and its ingress, the message queue of commands
that were accepted and are not applied yet. A command that cannot be applied becomes
a dead letter.`
	return cmd
}

func (c *commands) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show the contents and the counters of the logs and the queue",
		Example: `  wheelwork mq stats
  wheelwork mq stats --dir /var/lib/wheelwork -o json`,
		Args: command.Arguments(),
	}
	dir := addDir(cmd)
	all := ""
	cmd.RunE = c.onQueues(dir, need{log: &all, queue: true}, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, _ []string) error {
		m, err := q.GetQueues(ctx, &apiv1.GetQueuesRequest{})
		if err != nil {
			return err
		}
		if c.Format != output.Table {
			return c.PrintOne(nil, output.Message(m, nil))
		}
		return c.printStats(m)
	})
	return cmd
}

// printStats writes three tables: the logs, the groups, and the rest.
func (c *commands) printStats(m *apiv1.GetQueuesResponse) error {
	logs := []string{"log", "records", "durable below", "segments", "disk", "room", "appends", "flushes", "syncs", "scrubbed", "damaged", "error"}
	err := c.PrintAll(logs, output.Each(m.Logs, logRecord))
	if err != nil || len(m.Topics) == 0 && m.DiskMark == "" {
		return err
	}
	fmt.Fprintln(c.Out)
	groups := []string{"topic", "positions", "group", "lag", "ready", "delayed", "unacked", "retrying", "dead", "oldest"}
	err = c.PrintAll(groups, func(yield func(output.Record, error) bool) {
		for _, t := range m.Topics {
			of := t.Groups
			if len(of) == 0 {
				of = []*apiv1.GroupStats{nil}
			}
			for _, g := range of {
				if !yield(output.Record{Row: func() []output.Cell { return groupRow(t, g) }}, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out)
	return c.PrintOne([]string{"dead letters", "duplicates", "lost unconsumed", "disk used"}, output.Record{Row: func() []output.Cell {
		return []output.Cell{
			{Text: fmt.Sprint(m.DeadLetters)},
			{Text: fmt.Sprint(m.Duplicates)},
			{Text: fmt.Sprint(m.LostUnconsumed)},
			{Text: fmt.Sprintf("%.0f %% (%s)", 100*m.DiskUsed, m.DiskMark)},
		}
	}})
}

func logRecord(l *apiv1.LogStats) output.Record {
	return output.Record{Row: func() []output.Cell {
		damaged := output.None
		if l.Damaged > 0 {
			damaged = output.Red
		}
		return []output.Cell{
			{Text: l.Name},
			{Text: span(l.First, l.Next)},
			{Text: fmt.Sprint(l.Durable)},
			{Text: fmt.Sprintf("%d+%d", l.Segments, l.Spares)},
			{Text: output.Bytes(l.DiskBytes)},
			{Text: output.Bytes(l.RoomBytes)},
			{Text: fmt.Sprint(l.Appends)},
			{Text: fmt.Sprint(l.Flushes)},
			{Text: fmt.Sprint(l.Syncs)},
			{Text: output.Bytes(int64(l.ScrubbedBytes))},
			{Text: fmt.Sprint(l.Damaged), Tint: damaged},
			{Text: l.Error, Tint: output.Red},
		}
	}}
}

func groupRow(t *apiv1.TopicStats, g *apiv1.GroupStats) []output.Cell {
	row := []output.Cell{{Text: t.Topic}, {Text: span(t.First, t.Next)}}
	if g == nil {
		return row
	}
	dead := output.None
	if g.Dead > 0 {
		dead = output.Red
	}
	return append(row,
		output.Cell{Text: g.Group},
		output.Cell{Text: fmt.Sprint(g.Lag)},
		output.Cell{Text: fmt.Sprint(g.Ready)},
		output.Cell{Text: fmt.Sprint(g.Delayed)},
		output.Cell{Text: fmt.Sprint(g.Unacked)},
		output.Cell{Text: fmt.Sprint(g.Retrying)},
		output.Cell{Text: fmt.Sprint(g.Dead), Tint: dead},
		output.Cell{Text: output.Time(g.OldestAt)})
}

// span formats the range first <= n < next.
func span(first, next uint64) string {
	if first >= next {
		return "none"
	}
	return fmt.Sprintf("%d–%d", first, next-1)
}

// addTopic adds the flags that select a log and a topic.
func addTopic(cmd *cobra.Command, log, topic *string) {
	cmd.Flags().StringVar(log, "log", "", "`name` of the log: journal, ingress (default ingress; spool of a host's directory)")
	cmd.Flags().StringVar(topic, "topic", "", "topic of the ingress (default commands)")
	command.Complete(cmd, "log", "journal", ingressLog)
}

func (c *commands) peek() *cobra.Command {
	req := &apiv1.PeekMessagesRequest{}
	cmd := &cobra.Command{
		Use:   "peek",
		Short: "Show messages of the queue or records of a log without consuming them",
		Example: `  wheelwork mq peek --limit 5
  wheelwork mq peek --log journal --from 1200 -o jsonl
  wheelwork mq peek --dir /var/lib/wheelwork/journal`,
		Args: command.Arguments(),
	}
	dir := addDir(cmd)
	addTopic(cmd, &req.Log, &req.Topic)
	cmd.Flags().Uint64Var(&req.From, "from", 0, "begin at this position or sequence (default the oldest)")
	cmd.Flags().Int32Var(&req.Limit, "limit", 20, "show at most this many, up to 1000")
	cmd.RunE = c.onQueues(dir, need{log: &req.Log}, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, _ []string) error {
		if req.Limit < 1 || req.Limit > 1000 {
			return command.Usage(cmd, "--limit %d: want 1 to 1000", req.Limit)
		}
		answer, err := q.PeekMessages(ctx, req)
		if err != nil {
			return err
		}
		columns := []string{"sequence", "type", "queue", "bytes", "body"}
		if req.Log == "" || req.Log == ingressLog {
			columns = []string{"position", "key", "published at", "due at", "bytes", "body"}
		}
		return c.PrintAll(columns, output.Each(answer.Messages, messageRecord))
	})
	return cmd
}

func messageRecord(m *apiv1.Message) output.Record {
	return output.Message(m, func() []output.Cell { return messageRow(m) })
}

// messageRow returns a table row that begins with the number and ends with the body.
func messageRow(m *apiv1.Message) []output.Cell {
	row := []output.Cell{{Text: fmt.Sprint(m.Sequence)}}
	if m.Topic != "" {
		row = append(row, output.Cell{Text: m.Key}, output.Cell{Text: output.Time(m.PublishedAt)}, output.Cell{Text: output.Time(m.DueAt)})
	} else {
		row = append(row, output.Cell{Text: fmt.Sprint(m.Type)}, output.Cell{Text: fmt.Sprint(m.Queue)})
	}
	return append(row, output.Cell{Text: fmt.Sprint(len(m.Body))}, output.Cell{Text: excerpt(m.Text, m.Body)})
}

// excerpt returns the beginning of a body for a table.
func excerpt(text string, body []byte) string {
	const most = 160
	if text == "" {
		if !output.IsPrintable(string(body)) {
			if len(body) > most/2 {
				return hex.EncodeToString(body[:most/2]) + "…"
			}
			return hex.EncodeToString(body)
		}
		text = string(body)
	}
	if n := []rune(text); len(n) > most {
		return string(n[:most]) + "…"
	}
	return text
}

// bodyText formats a whole body for people: a command as JSON, otherwise text, otherwise
// a hex dump.
func bodyText(text string, body []byte) string {
	switch {
	case text != "":
		return indented(text)
	case output.IsPrintable(string(body)):
		return string(body)
	}
	return hex.Dump(body)
}

func (c *commands) tail() *cobra.Command {
	req := &apiv1.TailMessagesRequest{}
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print messages or records as they become durable, until Ctrl-C",
		Long: `Print messages of the queue or records of a log as they become durable, until
Ctrl-C. With --dir the command prints the existing ones, from --from or the oldest,
and ends.`,
		Example: `  wheelwork mq tail -o jsonl
  wheelwork mq tail --log journal --from 1200`,
		Args: command.Arguments(),
	}
	dir := addDir(cmd)
	addTopic(cmd, &req.Log, &req.Topic)
	cmd.Flags().Uint64Var(&req.From, "from", 0, "begin at this position or sequence (default the next one)")
	cmd.RunE = c.onQueues(dir, need{log: &req.Log, waits: true}, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, _ []string) error {
		messages := following(ctx, q, req)
		if *dir != "" {
			messages = present(ctx, q, req)
		}
		err := output.PrintStream(c.Printer, messages, messageLine, func(m *apiv1.Message) output.Record { return output.Message(m, nil) })
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil // Ctrl-C is the normal end
		}
		return err
	})
	return cmd
}

var errStop = errors.New("stop")

// following iterates over messages as they arrive.
func following(ctx context.Context, q apiv1.QueuesServer, req *apiv1.TailMessagesRequest) iter.Seq2[*apiv1.Message, error] {
	return func(yield func(*apiv1.Message, error) bool) {
		err := q.TailMessages(req, sink[apiv1.Message]{ctx: ctx, send: func(m *apiv1.Message) error {
			if !yield(m, nil) {
				return errStop
			}
			return nil
		}})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// present iterates over the existing messages.
func present(ctx context.Context, q apiv1.QueuesServer, req *apiv1.TailMessagesRequest) iter.Seq2[*apiv1.Message, error] {
	return func(yield func(*apiv1.Message, error) bool) {
		from := req.From
		for {
			page, err := q.PeekMessages(ctx, &apiv1.PeekMessagesRequest{Log: req.Log, Topic: req.Topic, From: from, Limit: 1000})
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page.Messages) == 0 {
				return
			}
			for _, m := range page.Messages {
				if !yield(m, nil) {
					return
				}
				from = m.Sequence + 1
			}
		}
	}
}

// messageLine formats a message without columns.
func messageLine(m *apiv1.Message) string {
	var line []string
	for _, cell := range messageRow(m) {
		if cell.Text != "" {
			line = append(line, strings.ReplaceAll(output.Printable(cell.Text), "\n", " "))
		}
	}
	return strings.Join(line, "  ")
}
