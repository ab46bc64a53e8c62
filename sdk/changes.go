package sdk

import (
	"context"
	"errors"

	"github.com/wheelworkhq/wheelwork/document"
)

// Change is a field in which two definitions differ.
type Change = document.Change

// Preview is what [Client.Apply] would do.
type Preview struct {
	Result  Result   // Created, Updated or Unchanged
	Changes []Change // of an update
}

// Preview checks a definition like [Client.DryRun] and also reports what would change.
func (c *Client) Preview(ctx context.Context, job *Job, together ...string) (Preview, error) {
	old, err := c.Job(ctx, job.GetApp(), job.GetName())
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Preview{}, err
	}
	next, result, err := c.dryRun(ctx, job, together)
	p := Preview{Result: result}
	if err == nil && result == Updated && old != nil {
		p.Changes = Changes(old, next)
	}
	return p, err
}

// Changes returns the fields in which a definition differs from an older one of the same
// job. It ignores what the server sets, and a pause that the new definition leaves unset.
func Changes(old, next *Job) []Change { return document.Changes(old, next) }
