package host

import (
	"context"
	"errors"
	"fmt"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// runOther runs a task whose handler is in no module.
func (h *Host) runOther(ctx context.Context, a *session.Attempt) runtime.Result {
	m := a.Task
	e, err := job.ParseExecutor(m.Handler)
	if err != nil {
		return runtime.Result{Outcome: runtime.HostError, Error: err.Error(), Code: "handler"}
	}
	x := h.cfg.Others[e.Needs()]
	if x == nil {
		return runtime.Result{Outcome: runtime.HostError, Error: fmt.Sprintf("this host does not run %s", e.Needs()), Code: "handler"}
	}
	t := taskOf(m)
	t.Module, t.Handler, t.Command = e.Name, e.Handler, m.Command
	if m.Http == nil {
		return x.Run(ctx, t, sink{a: a})
	}
	t.Grants = h.grants.of(m.Grants)
	if t.HTTP, err = h.httpCall(ctx, &t, m.Http); err != nil {
		return h.redacted(&t, unfilled(ctx, &t, err))
	}
	return h.redacted(&t, x.Run(ctx, t, sink{a, h.cfg.Guests, &t}))
}

// httpCall converts the request of a task for executors, and fills in the task's input
// and the secrets that the request names.
func (h *Host) httpCall(ctx context.Context, t *runtime.Task, c *apiv1.HTTPCall) (*runtime.HTTPCall, error) {
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.Deadline)
		defer cancel()
	}
	r, err := job.FillRequest(c, t.Input, func(name string) ([]byte, error) {
		if h.cfg.Guests == nil {
			return nil, runtime.ErrNoService
		}
		return h.cfg.Guests.Secret(ctx, t, name)
	})
	if err != nil {
		return nil, err
	}
	call := &runtime.HTTPCall{Request: runtime.Request{
		Method: r.Method, URL: r.URL, Header: map[string][]string{}, Body: r.Body, Secret: r.Secret, SecretBody: r.SecretBody,
	}, Timeout: r.Timeout}
	for name, value := range r.Headers {
		call.Request.Header[name] = []string{value}
	}
	for _, e := range r.Expect {
		call.Expect = append(call.Expect, runtime.StatusRange{First: e[0], Last: e[1]})
	}
	if call.Confidential() { // a response may repeat a secret of the request
		call.Redact = func(text []byte) []byte { return h.cfg.Guests.Redact(t, text) }
	}
	return call, nil
}

// unfilled returns the result of a task whose request could not be filled in.
func unfilled(ctx context.Context, t *runtime.Task, err error) runtime.Result {
	var secret *job.SecretError
	if !errors.As(err, &secret) {
		return runtime.Result{Outcome: runtime.Permanent, Error: err.Error(), Code: "bad_task"}
	}
	r := runtime.Result{Outcome: runtime.HostError, Error: err.Error(), Code: "secret"}
	switch {
	case ctx.Err() != nil:
		r.Outcome, r.Code = runtime.Stopped, "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		r.Outcome, r.Code = runtime.TimedOut, "deadline"
	case errors.Is(err, runtime.ErrNotGranted):
		r.Outcome, r.Code = runtime.Permanent, "not_granted"
		r.Error = fmt.Sprintf("secret %s was not granted to requests of app %s: its owner allows it with `wheelwork module grant %s --secret %s --http HOST --app %s`", secret.Name, t.App, job.HTTPModule, secret.Name, t.App)
	case errors.Is(err, runtime.ErrNoEntry):
		r.Outcome, r.Code = runtime.Permanent, "no_secret"
		r.Error = fmt.Sprintf("there is no secret %s in app %s: `wheelwork secret set %s --app %s` sets it", secret.Name, t.App, secret.Name, t.App)
	}
	return r
}
