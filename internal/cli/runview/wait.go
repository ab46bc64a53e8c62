package runview

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// Await waits for the end of a run, prints it, and fails unless it succeeded.
func (v Viewer) Await(ctx context.Context, client *sdk.Client, id string) error {
	state := "accepted"
	told := v.tellReasons(ctx, client, id)
	defer told.stop()
	for run, err := range client.Watch(ctx, v.App, id) {
		switch {
		case err == nil:
			state = run.GetState()
			told.state(state)
			v.Status(status(run))
			continue
		case errors.Is(err, context.DeadlineExceeded):
			v.ClearStatus()
			why := ""
			if state == "queued" {
				why = fmt.Sprintf(", or see with \"wheelwork run explain %s\" why no host has it", id)
			}
			return command.Fail("deadline_exceeded", "run %s is still %s after %v and continues: wait again with \"wheelwork run wait %s\"%s", id, state, v.Timeout, id, why)
		case errors.Is(err, context.Canceled):
			v.ClearStatus()
			return command.Fail("canceled", "interrupted; run %s continues: wait again with \"wheelwork run wait %s\" or end it with \"wheelwork run cancel %s\"", id, id, id)
		}
		v.ClearStatus()
		return err
	}
	v.ClearStatus()
	told.stop()
	run, err := client.Run(ctx, v.App, id)
	if err != nil {
		return err
	}
	if err := v.Print(run); err != nil {
		return err
	}
	if run.GetState() == sdk.Succeeded {
		return nil
	}
	return command.Fail("run_"+run.GetState(), "run %s %s", id, ended(run))
}

// status is the line about a run that has not ended.
func status(run *sdk.Run) string {
	line := fmt.Sprintf("%s %s, attempt %d of %d", run.GetId(), run.GetState(), run.GetAttempt(), run.GetMaxAttempts())
	if run.GetParts() > 0 && run.GetParent() == "" {
		line = fmt.Sprintf("%s %s, %d of %d parts have ended", run.GetId(), run.GetState(), run.GetPartsSucceeded()+run.GetPartsFailed(), run.GetParts())
	}
	if p := run.GetProgress(); p != nil {
		line += fmt.Sprintf(", %d", p.GetDone())
		if p.GetTotal() > 0 {
			line += fmt.Sprintf(" of %d", p.GetTotal())
		}
		line += " " + p.GetMessage()
	}
	return line
}

// ended describes the end of an unsuccessful run.
func ended(run *sdk.Run) string {
	text := map[string]string{
		"failed": "failed", "timed_out": "timed out", "stopped": "was stopped", "cancelled": "was cancelled before it started",
		"skipped": "was skipped", "missed": "was missed",
	}[run.GetState()]
	text = cmp.Or(text, "ended as "+run.GetState())
	if run.GetError() != "" {
		text += ": " + run.GetError()
	}
	return text
}
