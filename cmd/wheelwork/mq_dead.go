package main

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

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (c *cli) mqDead() *cobra.Command {
	return group("dlq", "Handle dead letters: messages that were accepted and could not be delivered",
		c.deadList(), c.deadShow(), c.deadEdit(), c.deadReplay(), c.deadDrop())
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
	complete(cmd, "reason", "permanent", "attempts")
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
			return nil, usage(cmd, "--%s %q: want a time as 2026-03-08T12:00:00Z, or how long ago, as 2h", f.name, f.value)
		}
		*f.to = timestamppb.New(at)
	}
	if r := l.filter.Reason; r != "" && !slices.Contains([]string{"permanent", "attempts"}, r) {
		return nil, usage(cmd, "--reason %q: want permanent or attempts", r)
	}
	if proto.Size(&l.filter) == 0 {
		return nil, nil
	}
	return &l.filter, nil
}

// onDead runs do on the dead letters of a server or a directory.
func (c *cli) onDead(dir *string, do queues) func(*cobra.Command, []string) error {
	return c.onQueues(dir, need{queue: true}, do)
}

func (c *cli) deadList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  wheelwork mq dlq list --reason permanent --since 24h
  wheelwork mq dlq list --dir /var/lib/wheelwork --limit 0 -o jsonl`,
		Args: arguments(),
	}
	dir, flags := addDir(cmd), addLetters(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "show at most this many; 0 for all")
	cmd.RunE = c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, cmd *cobra.Command, _ []string) error {
		filter, err := flags.build(cmd)
		if err != nil {
			return err
		}
		if limit < 0 {
			return usage(cmd, "--limit %d: want a positive number, or 0 for all", limit)
		}
		columns := []string{"id", "topic", "group", "key", "reason", "attempts", "dead at", "last error"}
		return c.printAll(columns, records(letters(ctx, q, filter, limit), func(d *apiv1.DeadLetter) record {
			return message(d, func() []cell { return letterRow(d) })
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

func letterRow(d *apiv1.DeadLetter) []cell {
	return []cell{
		{d.Id, none},
		{d.Topic, none},
		{d.Group, none},
		{d.Key, none},
		{d.Reason, none},
		{fmt.Sprint(d.Attempts), none},
		{moment(d.DeadAt), none},
		{d.LastError, red},
	}
}

func (c *cli) deadShow() *cobra.Command {
	var bodyOnly bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead letter with its body and its errors",
		Long: `Show a dead letter with its body and its errors. --body prints the body alone:
a command as JSON, which "edit" takes, anything else as it is.`,
		Example: `  wheelwork mq dlq show 17
  wheelwork mq dlq show 17 --body > letter.json`,
		Args: arguments("ID"),
	}
	dir := addDir(cmd)
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "print the body alone")
	cmd.RunE = c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, args []string) error {
		d, err := q.GetDeadLetter(ctx, &apiv1.GetDeadLetterRequest{Id: args[0]})
		switch {
		case err != nil:
			return err
		case bodyOnly && d.Text != "":
			_, err = fmt.Fprintln(c.out, indented(d.Text))
			return err
		case bodyOnly:
			_, err = c.out.Write(d.Body)
			return err
		}
		return c.printLetter(d)
	})
	return cmd
}

func (c *cli) printLetter(d *apiv1.DeadLetter) error {
	columns := []string{
		"id", "topic", "group", "key", "reason", "attempts", "origin", "published at", "dead at",
		"first error at", "first error", "last error at", "last error", "body",
	}
	return c.printOne(columns, message(d, func() []cell {
		return []cell{
			{d.Id, none},
			{d.Topic, none},
			{d.Group, none},
			{d.Key, none},
			{d.Reason, none},
			{fmt.Sprint(d.Attempts), none},
			{d.Origin, none},
			{moment(d.PublishedAt), none},
			{moment(d.DeadAt), none},
			{moment(d.FirstErrorAt), none},
			{d.FirstError, red},
			{moment(d.LastErrorAt), none},
			{d.LastError, red},
			{bodyText(d.Text, d.Body), none},
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

func (c *cli) deadEdit() *cobra.Command {
	var body string
	cmd := &cobra.Command{
		Use:   "edit ID --body FILE",
		Short: "Replace the body of a dead letter, so that it can be replayed",
		Long: `Replace the body of a dead letter. A JSON object is a command, in the form that
"show --body" prints; anything else is taken as it is. What makes a trigger
happen once, its time and its key, stays as it was if the text leaves it out.`,
		Example: `  wheelwork mq dlq show 17 --body > letter.json
  wheelwork mq dlq edit 17 --body letter.json
  wheelwork mq dlq replay 17`,
		Args: arguments("ID"),
	}
	dir := addDir(cmd)
	cmd.Flags().StringVar(&body, "body", "", "`file` with the new body, - for standard input")
	edit := c.onDead(dir, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, args []string) error {
		raw, err := c.readBody(body)
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
			return usage(cmd, "--body FILE is missing")
		}
		return edit(cmd, args)
	}
	return cmd
}

func (c *cli) readBody(name string) ([]byte, error) {
	const most = 4 << 20 // maximum size of a message
	in := c.in
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
		return nil, fmt.Errorf("%s is larger than %s, the most that a message may have", name, bytesText(most))
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
	cmd.Flags().BoolVar(&l.all, "all", false, "all dead letters there are")
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
		return nil, usage(cmd, "say which dead letters, in one way: by IDs, by filter flags, or --all")
	}
	return filter, nil
}

func (c *cli) deadReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Deliver dead letters again; none is lost or doubled",
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

func (c *cli) deadDrop() *cobra.Command {
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
				c.note("no dead letter matches: nothing is removed")
				return nil
			}
			if err := c.confirm(fmt.Sprintf("Remove %d dead letters for good", n)); err != nil {
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
func (c *cli) printCount(what string, answer proto.Message, n int64, named int) error {
	err := c.printOne([]string{what}, message(answer, func() []cell { return []cell{{fmt.Sprint(n), none}} }))
	if err == nil && n < int64(named) {
		err = &codedError{"not_found", fmt.Sprintf("%d of %d dead letters were %s: there are no others of these ids", n, named, what)}
	}
	return err
}
