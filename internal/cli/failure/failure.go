package failure

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/job/errorkind"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about errors.
type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "error".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	cmd := command.Group("error", "Show failed runs by the kind of their error, acknowledge and ignore kinds",
		c.list(), c.acknowledge(), c.ignore(), c.marks(), c.clear())
	cmd.Long = cmd.Short + `.

A kind of error is a job, a code and a message without what differs each time: numbers,
ids, addresses and quoted parts. Its fingerprint is the same in the console.`
	return cmd
}

// kind is a kind of error with the failed runs that have it.
type kind struct {
	Fingerprint string `json:"fingerprint"`
	Count       int    `json:"count"`
	Job         string `json:"job"`
	Code        string `json:"code"`
	Error       string `json:"error"`   // without what differs
	Run         string `json:"run"`     // the newest
	Message     string `json:"message"` // of that run, its first 512 bytes
	First       string `json:"first_at"`
	Last        string `json:"last_at"`
	Mark        string `json:"mark"` // acknowledged or ignored
	Again       bool   `json:"again"`
	Note        string `json:"note"`

	last time.Time
}

var kindColumns = []string{"fingerprint", "count", "job", "code", "error", "last", "mark"}

func kindRecord(k *kind) output.Record {
	return output.Object(k, func() []output.Cell {
		mark, tint := k.Mark, output.None
		if k.Again {
			mark, tint = mark+", again since", output.Yellow
		}
		return []output.Cell{
			{Text: k.Fingerprint},
			{Text: strconv.Itoa(k.Count)},
			{Text: k.Job},
			{Text: k.Code},
			{Text: k.Error},
			{Text: k.Last},
			{Text: mark, Tint: tint},
		}
	})
}

// maxKinds bounds the kinds of one list: the runs after it belong to kinds that are listed, or are
// left out with a note.
const maxKinds = 1000

func (c *commands) list() *cobra.Command {
	var job, since string
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the kinds of errors of failed runs, the most frequent first",
		Long: `List the kinds of errors of failed runs, the most frequent first. Ignored kinds are left
out unless --all is given. "again since" means that an acknowledged kind has occurred
after its acknowledgement.`,
		Example: `  wheelwork error list
  wheelwork error list --job totals --since 168h --all`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			q := sdk.RunQuery{App: c.App, Job: job, State: "unsuccessful"}
			var err error
			if q.Since, err = command.Moment(cmd, "since", since, time.Now()); err != nil {
				return err
			}
			unreadable := 0
			q.Unreadable = func(blocks int) { unreadable += blocks }
			kinds, others, err := kindsOf(ctx, client, q)
			if err != nil {
				return err
			}
			marks, err := client.ErrorMarks(ctx, c.App)
			if err != nil {
				return err
			}
			shown, ignored := marked(kinds, marks, all)
			if err := c.PrintAll(kindColumns, output.Each(shown, kindRecord)); err != nil {
				return err
			}
			if unreadable > 0 {
				c.Note("warning: runs are missing: %d damaged blocks of the history were passed over, each of up to 256 runs", unreadable)
			}
			if others > 0 {
				c.Note("%d further failed runs are of other kinds: narrow the list with --job or --since", others)
			}
			if ignored > 0 {
				c.Note("ignored kinds: %d; --all shows them", ignored)
			}
			if len(kinds) == 0 {
				c.Note("%s", cmp.Or(connect.WhyEmpty(ctx, client, c.App, job), "no run has failed in this time: --since says how far the list goes back"))
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&job, "job", "", "only errors of this `JOB`")
	flags.StringVar(&since, "since", "24h", "runs that ended at this `time` or later: RFC 3339, a date in UTC, or how long ago, as 6h")
	flags.BoolVar(&all, "all", false, "ignored kinds too")
	return cmd
}

// kindsOf groups the failed runs of a query, the largest group first. others are the runs of kinds
// beyond maxKinds.
func kindsOf(ctx context.Context, client *sdk.Client, q sdk.RunQuery) (kinds []*kind, others int, err error) {
	found := map[string]*kind{}
	for run, err := range client.Runs(ctx, q) {
		if err != nil {
			return nil, 0, err
		}
		switch run.GetState() {
		case "failed", "timed_out", "missed":
		default:
			continue
		}
		text := errorkind.Of(run.GetError())
		id := errorkind.Fingerprint(run.GetJob(), run.GetCode(), text)
		k := found[id]
		if k == nil {
			if len(found) >= maxKinds {
				others++
				continue
			}
			k = &kind{Fingerprint: id, Job: run.GetJob(), Code: run.GetCode(), Error: text}
			found[id] = k
			kinds = append(kinds, k)
		}
		k.Count++
		ended := run.GetFinishedAt().AsTime()
		k.First = output.Time(run.GetFinishedAt()) // runs come with the newest first
		if k.Run == "" || ended.After(k.last) {
			k.Last, k.last, k.Run, k.Message = output.Time(run.GetFinishedAt()), ended, run.GetId(), beginning(run.GetError())
		}
	}
	slices.SortFunc(kinds, func(a, b *kind) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.last.Compare(a.last), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return kinds, others, nil
}

// beginning returns the part of a message that tells its kind.
func beginning(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), errorkind.MaxBytes)], "")
}

// marked adds marks to kinds, and returns those to show. ignored is the number of the others.
func marked(kinds []*kind, marks []*sdk.ErrorMark, all bool) (shown []*kind, ignored int) {
	of := make(map[string]*sdk.ErrorMark, len(marks))
	for _, m := range marks {
		of[m.GetFingerprint()] = m
	}
	for _, k := range kinds {
		m := of[k.Fingerprint]
		k.Mark, k.Note = m.GetState(), m.GetNote()
		k.Again = k.Mark == "acknowledged" && k.last.After(m.GetMarkedAt().AsTime())
		if k.Mark == "ignored" && !all {
			ignored++
			continue
		}
		shown = append(shown, k)
	}
	return shown, ignored
}
