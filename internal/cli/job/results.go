package job

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// result is the outcome for one job of a command on many jobs.
type result struct {
	App    string `json:"app"`
	Job    string `json:"job"`
	Result string `json:"result"`          // "refused" if there is an error
	Error  string `json:"error,omitempty"` // one sentence

	Changes []sdk.Change `json:"changes,omitempty"` // of a dry run that would update the job

	err error
}

func resultOf(job *sdk.Job, done sdk.Result, err error) result {
	r := result{App: job.GetApp(), Job: job.GetName(), Result: string(done)}
	if err != nil {
		r.Result, r.Error, r.err = "refused", err.Error(), err
	}
	return r
}

// printResults prints one line for each of total jobs. It fails if a job was refused. The
// table of a single refused job would repeat the error, so there is none.
func (c *commands) printResults(total int, results iter.Seq[result]) error {
	bar := c.Progress(int64(total), "jobs", false)
	var refused []error
	n := 0
	err := c.PrintAll([]string{"name", "result", "why"}, func(yield func(output.Record, error) bool) {
		for r := range results {
			n++
			bar.Reached(int64(n))
			tint := output.None
			if r.err != nil {
				tint = output.Red
				refused = append(refused, r.err)
			}
			if connect.Fatal(r.err) {
				return
			}
			if r.err != nil && total == 1 && c.Format == output.Table {
				yield(output.Record{}, r.err)
				return
			}
			row := []output.Cell{{Text: r.Job}, {Text: r.Result, Tint: tint}, {Text: r.Error}}
			if len(r.Changes) > 0 {
				row[2].Text = changeText(r.Changes[0])
			}
			if !yield(output.Object(r, func() []output.Cell { return row }), nil) {
				return
			}
			if c.Format != output.Table || len(r.Changes) == 0 {
				continue
			}
			for _, change := range r.Changes[1:] {
				row := []output.Cell{{}, {}, {Text: changeText(change)}}
				if !yield(output.Record{Row: func() []output.Cell { return row }}, nil) {
					return
				}
			}
		}
		bar.End()
	})
	switch {
	case err != nil:
		return err
	case total == 1 && len(refused) == 1:
		return refused[0]
	case len(refused) > 0 && connect.Fatal(refused[len(refused)-1]):
		return refused[len(refused)-1] // the remaining jobs would fail in the same way
	case len(refused) > 0:
		return command.Fail("refused", "%d of %s refused: the list says why", len(refused), command.Count(total, "job"))
	}
	return nil
}

// changeText describes a change in a cell.
func changeText(c sdk.Change) string {
	return fmt.Sprintf("%s: %s → %s", c.Field, valueText(c.Old), valueText(c.New))
}

// valueText shortens a value, and quotes one that is not plain.
func valueText(s string) string {
	const longest = 60
	if s == "" {
		return "unset"
	}
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s || strings.TrimSpace(s) != s {
		return quoted
	}
	return s
}
