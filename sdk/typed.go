package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Enqueue triggers a job with an input in JSON, for a handler that reads JSON, such as one
// of worker.HandleJSON. t names the job; its Input must be empty.
func Enqueue[In any](ctx context.Context, c *Client, t Trigger, in In) (Answer, error) {
	t, err := withJSON(t, in)
	if err != nil {
		return Answer{}, err
	}
	return c.Trigger(ctx, t)
}

// Call triggers a job with an input in JSON, waits for the end of its run, and reads the
// run's output as JSON. If the run does not succeed the error is a [*RunError]. t is as for
// [Enqueue]; with a Key of the program, a repeated Call finds the same run.
func Call[In, Out any](ctx context.Context, c *Client, t Trigger, in In) (out Out, err error) {
	if t, err = withJSON(t, in); err != nil {
		return out, err
	}
	run, err := c.TriggerAndWait(ctx, t)
	if err != nil {
		return out, err
	}
	if run.GetState() != "succeeded" {
		return out, &RunError{run}
	}
	output := run.GetOutputBytes()
	if output == nil {
		output = []byte(run.GetOutput())
	}
	if err := json.Unmarshal(output, &out); err != nil {
		return out, fmt.Errorf("the output of run %s of job %s does not fit: %w", run.GetId(), t.Job, err)
	}
	return out, nil
}

func withJSON(t Trigger, in any) (Trigger, error) {
	if t.Input != nil {
		return t, errors.New("the Input of the trigger is set: give the input as the last argument only")
	}
	b, err := json.Marshal(in)
	if err != nil {
		return t, fmt.Errorf("the input of job %s: %w", t.Job, err)
	}
	t.Input = b
	return t, nil
}

// RunError is the failure of a run.
type RunError struct {
	Run *Run // as it ended
}

func (e *RunError) Error() string {
	return fmt.Sprintf("run %s of job %s is %s: %s", e.Run.GetId(), e.Run.GetJob(), e.Run.GetState(), cmp.Or(e.Run.GetError(), e.Run.GetCode(), "there is no reason"))
}
