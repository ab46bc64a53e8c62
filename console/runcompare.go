package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// tailLines is the number of lines of each log that a comparison shows.
const tailLines = 20

// runPairView compares a run with another one, by default the last success of its job before it.
type runPairView struct {
	This, That *runSide
	With       string // the id that the visitor has chosen; "": none
}

// runSide is one run of a comparison.
type runSide struct {
	*apiv1.Run
	Input payload
	Tail  string // the last lines of its log
}

// Labelled returns the labels in one order, as a=1,b=2.
func (s *runSide) Labelled() string { return labelText(s.Labels) }

// SameInput reports whether both runs have had the same input.
func (p runPairView) SameInput() bool {
	return p.This.Run.Input == p.That.Run.Input && bytes.Equal(p.This.InputBytes, p.That.InputBytes)
}

// Related reports whether both runs are of one job, whose revisions can be compared.
func (p runPairView) Related() bool { return p.This.Job == p.That.Job }

// OneRevision reports whether both runs have the same definition.
func (p runPairView) OneRevision() bool { return p.This.JobRevision == p.That.JobRevision }

func (c *console) compareRunPage(v *visit) error {
	id := v.r.PathValue("id")
	view := runPairView{With: strings.TrimSpace(v.r.URL.Query().Get("with"))}
	var err error
	if view.This, err = c.side(v, id); err != nil {
		return err
	}
	other := view.With
	if other == "" {
		if other, err = c.lastSuccess(v, view.This.Run); err != nil {
			return err
		}
	}
	if other != "" {
		if view.That, err = c.side(v, other); err != nil {
			return err
		}
	}
	if view.That != nil && c.visitor(v).May("logs.read", v.app) {
		g, ctx := errgroup.WithContext(v.ctx)
		for _, s := range []*runSide{view.This, view.That} {
			g.Go(func() (err error) {
				s.Tail, err = c.logTail(ctx, v.app, s.Id)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return c.show(v, "runpair", "runs", view)
}

func (c *console) side(v *visit, id string) (*runSide, error) {
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: id})
	if err != nil {
		return nil, err
	}
	return &runSide{Run: run, Input: newPayload(run.Input, run.InputBytes)}, nil
}

// lastSuccess returns the id of the newest run of the job that succeeded before a run ended, or so far
// if the run is live; "": there is none.
func (c *console) lastSuccess(v *visit, r *apiv1.Run) (string, error) {
	req := &apiv1.ListRunsRequest{App: v.app, Job: r.Job, State: "succeeded", PageSize: 1}
	if r.FinishedAt != nil {
		req.Until = timestamppb.New(r.FinishedAt.AsTime())
	}
	answer, err := c.runs.ListRuns(v.ctx, req)
	if err != nil || len(answer.Runs) == 0 {
		return "", err
	}
	return answer.Runs[0].Id, nil
}

// logTail returns the last lines of a log as text. It looks for the end in steps that grow, and then
// between two of them, so that a long log is not read.
func (c *console) logTail(ctx context.Context, app, id string) (string, error) {
	has := func(line int64) (bool, error) {
		lines, err := c.logFrom(ctx, app, id, line, 1)
		return len(lines) > 0, err
	}
	last, beyond := int64(-1), int64(1) // line last exists, beyond does not
	for step := int64(tailLines); ; step *= 8 {
		found, err := has(last + step)
		if err != nil {
			return "", err
		}
		if !found {
			beyond = last + step
			break
		}
		last += step
	}
	for beyond-last > 1 {
		middle := last + (beyond-last)/2
		found, err := has(middle)
		if err != nil {
			return "", err
		}
		if found {
			last = middle
		} else {
			beyond = middle
		}
	}
	lines, err := c.logFrom(ctx, app, id, max(0, last-tailLines+1), tailLines)
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Level + " " + withoutColours(l.Text) + "\n")
	}
	return showNUL(b.String()), err
}

// logFrom returns at most n lines of a log.
func (c *console) logFrom(ctx context.Context, app, id string, from int64, n int) ([]*apiv1.LogLine, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream after n lines
	defer cancel()
	stream, err := c.runs.ReadLog(ctx, &apiv1.ReadLogRequest{App: app, Id: id, From: from})
	if err != nil {
		return nil, err
	}
	var lines []*apiv1.LogLine
	for len(lines) < n {
		line, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}
