package mq

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (c *commands) dead() *cobra.Command {
	return command.Group("dlq", "Handle dead letters: messages that were accepted and could not be delivered",
		c.listDead(), c.showDead(), c.editDead(), c.replayDead(), c.dropDead())
}

// letterFlags holds the flags that filter dead letters.
type letterFlags struct {
	filter       apiv1.DeadLetterFilter
	since, until string
}

func addLetters(cmd *cobra.Command) *letterFlags {
	l := &letterFlags{}
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Topic, "topic", "", "only of this topic")
	flags.StringVar(&l.filter.Group, "group", "", "only of this group")
	flags.StringVar(&l.filter.Key, "key", "", "only with this key: APP/JOB for commands")
	flags.StringVar(&l.filter.Reason, "reason", "", "only dead for this reason: permanent, attempts")
	flags.StringVar(&l.filter.Error, "error", "", "only with this `text` in the first or last error")
	flags.StringVar(&l.since, "since", "", "only dead since this `time`: RFC 3339, or how long ago, as 2h")
	flags.StringVar(&l.until, "until", "", "only dead before this `time`: RFC 3339, or how long ago, as 2h")
	command.Complete(cmd, "reason", "permanent", "attempts")
	return l
}

// build checks the flags and returns the filter, nil when none is set.
func (l *letterFlags) build(cmd *cobra.Command) (*apiv1.DeadLetterFilter, error) {
	for _, f := range []struct {
		name, value string
		to          **timestamppb.Timestamp
	}{{"since", l.since, &l.filter.Since}, {"until", l.until, &l.filter.Until}} {
		if f.value == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, f.value)
		if ago, bad := time.ParseDuration(f.value); bad == nil && ago >= 0 {
			at, err = time.Now().Add(-ago), nil
		}
		if err != nil {
			return nil, command.Usage(cmd, "--%s %q: want a time as 2026-03-08T12:00:00Z, or how long ago, as 2h", f.name, f.value)
		}
		*f.to = timestamppb.New(at)
	}
	if r := l.filter.Reason; r != "" && !slices.Contains([]string{"permanent", "attempts"}, r) {
		return nil, command.Usage(cmd, "--reason %q: want permanent or attempts", r)
	}
	if proto.Size(&l.filter) == 0 {
		return nil, nil
	}
	return &l.filter, nil
}

// onDead runs do on the dead letters of a server or a directory.
func (c *commands) onDead(dir *string, do queues) func(*cobra.Command, []string) error {
	return c.onQueues(dir, need{queue: true}, do)
}

func (c *commands) listDead() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  wheelwork mq dlq list --reason permanent --since 24h
  wheelwork mq dlq list --dir /var/lib/wheelwork --limit 0 -o jsonl`,
		Args: command.Arguments(),
	}
	dir, flags := addDir(cmd), addLetters(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most this many; 0 for all")
	cmd.RunE = c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, _ []string) error {
		filter, err := flags.build(cmd)
		if err != nil {
			return err
		}
		if limit < 0 {
			return command.Usage(cmd, "--limit %d: want a positive number, or 0 for all", limit)
		}
		columns := []string{"id", "topic", "group", "key", "reason", "attempts", "dead at", "last error"}
		return c.PrintAll(columns, output.Records(letters(ctx, q, filter, limit), func(d *apiv1.DeadLetter) output.Record {
			return output.Message(d, func() []output.Cell { return letterRow(d) })
		}))
	})
	return cmd
}

// letters iterates over up to limit dead letters without their bodies; 0: all.
func letters(ctx context.Context, q apiv1.QueuesServer, filter *apiv1.DeadLetterFilter, limit int) iter.Seq2[*apiv1.DeadLetter, error] {
	return func(yield func(*apiv1.DeadLetter, error) bool) {
		req := &apiv1.ListDeadLettersRequest{Filter: filter, PageSize: 1000}
		for n := 0; ; {
			if limit > 0 {
				req.PageSize = int32(min(1000, limit-n))
			}
			page, err := q.ListDeadLetters(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, d := range page.Letters {
				if n++; !yield(d, nil) {
					return
				}
			}
			if req.PageToken = page.NextPageToken; req.PageToken == "" || limit > 0 && n >= limit {
				return
			}
		}
	}
}

func letterRow(d *apiv1.DeadLetter) []output.Cell {
	return []output.Cell{
		{Text: d.Id},
		{Text: d.Topic},
		{Text: d.Group},
		{Text: d.Key},
		{Text: d.Reason},
		{Text: fmt.Sprint(d.Attempts)},
		{Text: output.Time(d.DeadAt)},
		{Text: d.LastError, Tint: output.Red},
	}
}

func (c *commands) showDead() *cobra.Command {
	var bodyOnly bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead letter with its body and its errors",
		Long: `Show a dead letter with its body and its errors. --body prints the body alone:
a command as JSON, which "edit" takes, other bytes unchanged.`,
		Example: `  wheelwork mq dlq show 17
  wheelwork mq dlq show 17 --body > letter.json`,
		Args: command.Arguments("ID"),
	}
	dir := addDir(cmd)
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "print the body alone")
	cmd.RunE = c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, args []string) error {
		d, err := q.GetDeadLetter(ctx, &apiv1.GetDeadLetterRequest{Id: args[0]})
		switch {
		case err != nil:
			return err
		case bodyOnly && d.Text != "":
			_, err = fmt.Fprintln(c.Out, indented(d.Text))
			return err
		case bodyOnly:
			_, err = c.Out.Write(d.Body)
			return err
		}
		return c.printLetter(d)
	})
	return cmd
}

func (c *commands) printLetter(d *apiv1.DeadLetter) error {
	columns := []string{
		"id", "topic", "group", "key", "reason", "attempts", "origin", "published at", "dead at",
		"first error at", "first error", "last error at", "last error", "body",
	}
	return c.PrintOne(columns, output.Message(d, func() []output.Cell {
		return []output.Cell{
			{Text: d.Id},
			{Text: d.Topic},
			{Text: d.Group},
			{Text: d.Key},
			{Text: d.Reason},
			{Text: fmt.Sprint(d.Attempts)},
			{Text: d.Origin},
			{Text: output.Time(d.PublishedAt)},
			{Text: output.Time(d.DeadAt)},
			{Text: output.Time(d.FirstErrorAt)},
			{Text: d.FirstError, Tint: output.Red},
			{Text: output.Time(d.LastErrorAt)},
			{Text: d.LastError, Tint: output.Red},
			{Text: bodyText(d.Text, d.Body)},
		}
	}))
}

// indented indents JSON and returns other text unchanged.
func indented(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String()
}

func (c *commands) editDead() *cobra.Command {
	var body string
	cmd := &cobra.Command{
		Use:   "edit ID --body FILE",
		Short: "Replace the body of a dead letter, so that it can be replayed",
		Long: `Replace the body of a dead letter. A JSON object is a command, in the form that
"show --body" prints; other bytes are stored unchanged. The time and the key of a
trigger, which make it happen only once, stay if the text leaves them out.`,
		Example: `  wheelwork mq dlq show 17 --body > letter.json
  wheelwork mq dlq edit 17 --body letter.json
  wheelwork mq dlq replay 17`,
		Args: command.Arguments("ID"),
	}
	dir := addDir(cmd)
	cmd.Flags().StringVar(&body, "body", "", "`file` with the new body, - for standard input")
	edit := c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, args []string) error {
		raw, err := readBody(cmd.InOrStdin(), body)
		if err != nil {
			return err
		}
		req := &apiv1.EditDeadLetterRequest{Id: args[0], Body: raw}
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
			req.Body, req.Text = nil, string(raw)
		}
		d, err := q.EditDeadLetter(ctx, req)
		if err != nil {
			return err
		}
		return c.printLetter(d)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if body == "" {
			return command.Usage(cmd, "--body FILE is missing")
		}
		return edit(cmd, args)
	}
	return cmd
}

func readBody(in io.Reader, name string) ([]byte, error) {
	const most = 4 << 20 // maximum size of a message
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(raw) > most:
		return nil, fmt.Errorf("%s is larger than %s, the most that a message may have", name, output.Bytes(most))
	}
	return raw, nil
}

// letterChoice selects the dead letters of a change: by ids, by a filter, or all.
type letterChoice struct {
	flags *letterFlags
	all   bool
}

func addChoice(cmd *cobra.Command) *letterChoice {
	l := &letterChoice{flags: addLetters(cmd)}
	cmd.Flags().BoolVar(&l.all, "all", false, "all dead letters")
	return l
}

// build returns the filter, nil for ids and all. Exactly one of the three must be given.
func (l *letterChoice) build(cmd *cobra.Command, ids []string) (*apiv1.DeadLetterFilter, error) {
	filter, err := l.flags.build(cmd)
	if err != nil {
		return nil, err
	}
	given := 0
	for _, is := range []bool{len(ids) > 0, filter != nil, l.all} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, command.Usage(cmd, "say which dead letters, in one way: by IDs, by filter flags, or --all")
	}
	return filter, nil
}

func (c *commands) replayDead() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Deliver dead letters again; none is lost or duplicated",
		Example: `  wheelwork mq dlq replay 17 18
  wheelwork mq dlq replay --error "no such module" --since 2h
  wheelwork mq dlq replay --all`,
		Args: cobra.ArbitraryArgs,
	}
	dir, chosen := addDir(cmd), addChoice(cmd)
	cmd.RunE = c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, ids []string) error {
		filter, err := chosen.build(cmd, ids)
		if err != nil {
			return err
		}
		answer, err := q.ReplayDeadLetters(ctx, &apiv1.ReplayDeadLettersRequest{Ids: ids, Filter: filter, All: chosen.all})
		if err != nil {
			return err
		}
		return c.printCount("replayed", answer, answer.Count, len(ids))
	})
	return cmd
}

func (c *commands) dropDead() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop [ID...]",
		Short: "Remove dead letters for good; asks first",
		Example: `  wheelwork mq dlq drop 17
  wheelwork mq dlq drop --until 720h --yes`,
		Args: cobra.ArbitraryArgs,
	}
	dir, chosen := addDir(cmd), addChoice(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = c.onQueues(dir, need{queue: true, waits: true}, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, ids []string) error {
		filter, err := chosen.build(cmd, ids)
		if err != nil {
			return err
		}
		if !yes {
			n := len(ids)
			if n == 0 {
				for _, err := range letters(ctx, q, filter, 0) {
					if err != nil {
						return err
					}
					n++
				}
			}
			if n == 0 {
				c.Note("no dead letter matches: nothing is removed")
				return nil
			}
			if err := command.Confirm(cmd, fmt.Sprintf("Remove %s for good", command.Count(n, "dead letter"))); err != nil {
				return err
			}
		}
		answer, err := q.DropDeadLetters(ctx, &apiv1.DropDeadLettersRequest{Ids: ids, Filter: filter, All: chosen.all})
		if err != nil {
			return err
		}
		return c.printCount("removed", answer, answer.Count, len(ids))
	})
	return cmd
}

// printCount prints the number of changed dead letters. It fails if some of the named
// ones do not exist.
func (c *commands) printCount(what string, answer proto.Message, n int64, named int) error {
	err := c.PrintOne([]string{what}, output.Message(answer, func() []output.Cell { return []output.Cell{{Text: fmt.Sprint(n)}} }))
	if err == nil && n < int64(named) {
		err = command.Fail("not_found", "%d of %d dead letters were %s: the other ids do not exist", n, named, what)
	}
	return err
}
