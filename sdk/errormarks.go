package sdk

import (
	"context"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ErrorToMark is a kind of error with what a caller says about it.
type ErrorToMark struct {
	App         string
	Fingerprint string // as "wheelwork error list" and the console show it
	Job         string // whose runs have the error, for people; "": not named
	Note        string // for people, at most 500 bytes
}

// AcknowledgeError notes that the caller has seen a kind of error. The mark stays when the error
// occurs again. It replaces the mark that the kind has.
func (c *Client) AcknowledgeError(ctx context.Context, e ErrorToMark) (*ErrorMark, error) {
	return c.markError(ctx, "acknowledge", e, &apiv1.MarkErrorRequest{State: "acknowledged"})
}

// IgnoreError ignores a kind of error until a time, or until its mark is cleared if the time is
// zero. It replaces the mark that the kind has.
func (c *Client) IgnoreError(ctx context.Context, e ErrorToMark, until time.Time) (*ErrorMark, error) {
	return c.markError(ctx, "ignore", e, &apiv1.MarkErrorRequest{State: "ignored", Until: timestampOf(until)})
}

func (c *Client) markError(ctx context.Context, verb string, e ErrorToMark, req *apiv1.MarkErrorRequest) (*ErrorMark, error) {
	req.App, req.Fingerprint, req.Job, req.Note = appOf(e.App), e.Fingerprint, e.Job, e.Note
	r, err := c.alerts.MarkError(ctx, req)
	return r, c.callError(ctx, verb+" error "+e.Fingerprint, err)
}

// ErrorMarks returns the marks of kinds of errors, the newest first.
func (c *Client) ErrorMarks(ctx context.Context, app string) ([]*ErrorMark, error) {
	r, err := c.alerts.ListErrorMarks(ctx, &apiv1.ListErrorMarksRequest{App: appOf(app)})
	return r.GetMarks(), c.callError(ctx, "list marks of errors", err)
}

// ClearErrorMark removes the mark of a kind of error. It fails with [ErrNotFound] if there is none.
func (c *Client) ClearErrorMark(ctx context.Context, app, fingerprint string) error {
	_, err := c.alerts.ClearErrorMark(ctx, &apiv1.ClearErrorMarkRequest{App: appOf(app), Fingerprint: fingerprint})
	return c.callError(ctx, "clear mark of error "+fingerprint, err)
}
