package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (c *cli) mqCommand() *cobra.Command {
	cmd := group("mq", "Look into logs and the message queue, repair them, handle dead letters",
		c.mqStats(), c.mqPeek(), c.mqTail(), c.mqVerify(), c.mqRepair(), c.mqDead())
	cmd.Long = cmd.Short + `.

A server has two logs: its journal, and its ingress, the message queue that
holds commands which were accepted and are not applied yet. What cannot be
applied becomes a dead letter.`
	return cmd
}

func (c *cli) mqStats() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what the logs and the queue hold and did",
		Example: `  wheelwork mq stats
  wheelwork mq stats --dir /var/lib/wheelwork -o json`,
		Args: arguments(),
	}
	dir := addDir(cmd)
	all := ""
	cmd.RunE = c.onQueues(dir, need{log: &all, queue: true}, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, _ []string) error {
		m, err := q.GetQueues(ctx, &apiv1.GetQueuesRequest{})
		if err != nil {
			return err
		}
		if c.format != formatTable {
			return c.printOne(nil, message(m, nil))
		}
		return c.printStats(m)
	})
	return cmd
}

// printStats writes three tables: the logs, the groups, and the rest.
func (c *cli) printStats(m *apiv1.GetQueuesResponse) error {
	logs := []string{"log", "records", "durable below", "segments", "disk", "room", "appends", "flushes", "syncs", "scrubbed", "damaged", "error"}
	err := c.printAll(logs, func(yield func(record, error) bool) {
		for _, l := range m.Logs {
			damaged := none
			if l.Damaged > 0 {
				damaged = red
			}
			row := []cell{
				{l.Name, none},
				{span(l.First, l.Next), none},
				{fmt.Sprint(l.Durable), none},
				{fmt.Sprintf("%d+%d", l.Segments, l.Spares), none},
				{bytesText(l.DiskBytes), none},
				{bytesText(l.RoomBytes), none},
				{fmt.Sprint(l.Appends), none},
				{fmt.Sprint(l.Flushes), none},
				{fmt.Sprint(l.Syncs), none},
				{bytesText(int64(l.ScrubbedBytes)), none},
				{fmt.Sprint(l.Damaged), damaged},
				{l.Error, red},
			}
			if !yield(record{row: func() []cell { return row }}, nil) {
				return
			}
		}
	})
	if err != nil || len(m.Topics) == 0 && m.DiskMark == "" {
		return err
	}
	fmt.Fprintln(c.out)
	groups := []string{"topic", "positions", "group", "lag", "ready", "delayed", "unacked", "retrying", "dead", "oldest"}
	err = c.printAll(groups, func(yield func(record, error) bool) {
		for _, t := range m.Topics {
			of := t.Groups
			if len(of) == 0 {
				of = []*apiv1.GroupStats{nil}
			}
			for _, g := range of {
				if !yield(record{row: func() []cell { return groupRow(t, g) }}, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	return c.printOne([]string{"dead letters", "duplicates", "lost unconsumed", "disk used"}, record{row: func() []cell {
		return []cell{
			{fmt.Sprint(m.DeadLetters), none},
			{fmt.Sprint(m.Duplicates), none},
			{fmt.Sprint(m.LostUnconsumed), none},
			{fmt.Sprintf("%.0f %% (%s)", 100*m.DiskUsed, m.DiskMark), none},
		}
	}})
}

func groupRow(t *apiv1.TopicStats, g *apiv1.GroupStats) []cell {
	row := []cell{{t.Topic, none}, {span(t.First, t.Next), none}}
	if g == nil {
		return row
	}
	dead := none
	if g.Dead > 0 {
		dead = red
	}
	return append(row,
		cell{g.Group, none},
		cell{fmt.Sprint(g.Lag), none},
		cell{fmt.Sprint(g.Ready), none},
		cell{fmt.Sprint(g.Delayed), none},
		cell{fmt.Sprint(g.Unacked), none},
		cell{fmt.Sprint(g.Retrying), none},
		cell{fmt.Sprint(g.Dead), dead},
		cell{moment(g.OldestAt), none})
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
	complete(cmd, "log", "journal", ingressLog)
}

func (c *cli) mqPeek() *cobra.Command {
	req := &apiv1.PeekMessagesRequest{}
	cmd := &cobra.Command{
		Use:   "peek",
		Short: "Show messages of the queue or records of a log without consuming them",
		Example: `  wheelwork mq peek --limit 5
  wheelwork mq peek --log journal --from 1200 -o jsonl
  wheelwork mq peek --dir /var/lib/wheelwork/journal`,
		Args: arguments(),
	}
	dir := addDir(cmd)
	addTopic(cmd, &req.Log, &req.Topic)
	cmd.Flags().Uint64Var(&req.From, "from", 0, "begin at this position or sequence (default the oldest)")
	cmd.Flags().Int32Var(&req.Limit, "limit", 20, "show at most this many, up to 1000")
	cmd.RunE = c.onQueues(dir, need{log: &req.Log}, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, _ []string) error {
		if req.Limit < 1 || req.Limit > 1000 {
			return usage(cmd, "--limit %d: want 1 to 1000", req.Limit)
		}
		answer, err := q.PeekMessages(ctx, req)
		if err != nil {
			return err
		}
		columns := []string{"sequence", "type", "queue", "bytes", "body"}
		if req.Log == "" || req.Log == ingressLog {
			columns = []string{"position", "key", "published at", "due at", "bytes", "body"}
		}
		return c.printAll(columns, func(yield func(record, error) bool) {
			for _, m := range answer.Messages {
				if !yield(message(m, func() []cell { return messageRow(m) }), nil) {
					return
				}
			}
		})
	})
	return cmd
}

// messageRow returns a table row that begins with the number and ends with the body.
func messageRow(m *apiv1.Message) []cell {
	row := []cell{{fmt.Sprint(m.Sequence), none}}
	if m.Topic != "" {
		row = append(row, cell{m.Key, none}, cell{moment(m.PublishedAt), none}, cell{moment(m.DueAt), none})
	} else {
		row = append(row, cell{fmt.Sprint(m.Type), none}, cell{fmt.Sprint(m.Queue), none})
	}
	return append(row, cell{fmt.Sprint(len(m.Body)), none}, cell{excerpt(m.Text, m.Body), none})
}

// excerpt returns the beginning of a body for a table.
func excerpt(text string, body []byte) string {
	const most = 160
	if text == "" {
		if !utf8.Valid(body) || strings.ContainsFunc(string(body), steers) {
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
	case utf8.Valid(body) && !strings.ContainsFunc(string(body), steers):
		return string(body)
	}
	return hex.Dump(body)
}

func (c *cli) mqTail() *cobra.Command {
	req := &apiv1.TailMessagesRequest{}
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print messages or records as they become durable, until Ctrl-C",
		Long: `Print messages of the queue or records of a log as they become durable, until
Ctrl-C. With --dir nothing new can come: it prints what there is from --from on
(the oldest without it) and ends.`,
		Example: `  wheelwork mq tail -o jsonl
  wheelwork mq tail --log journal --from 1200`,
		Args: arguments(),
	}
	dir := addDir(cmd)
	addTopic(cmd, &req.Log, &req.Topic)
	cmd.Flags().Uint64Var(&req.From, "from", 0, "begin at this position or sequence (default with what comes next)")
	cmd.RunE = c.onQueues(dir, need{log: &req.Log, waits: true}, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, _ []string) error {
		messages := following(ctx, q, req)
		if *dir != "" {
			messages = present(ctx, q, req)
		}
		err := c.printMessages(messages)
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

// printMessages prints each message at once, without buffering.
func (c *cli) printMessages(messages iter.Seq2[*apiv1.Message, error]) error {
	if c.format == formatJSON {
		return c.printAll(nil, records(messages, func(m *apiv1.Message) record { return message(m, nil) }))
	}
	w := bufio.NewWriter(c.out)
	first := true
	for m, err := range messages {
		if err != nil {
			return err
		}
		switch {
		case c.format == formatTable:
			var line []string
			for _, cell := range messageRow(m) {
				if cell.text != "" {
					line = append(line, strings.ReplaceAll(printable(cell.text), "\n", " "))
				}
			}
			fmt.Fprintln(w, strings.Join(line, "  "))
		default:
			if c.format == formatYAML && !first {
				fmt.Fprintln(w, "---")
			}
			if err := c.writeOne(w, nil, message(m, nil)); err != nil {
				return err
			}
		}
		first = false
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}
