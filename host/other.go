package host

import (
	"context"
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
	if m.Http != nil {
		if t.HTTP, err = httpCall(m.Http, m.Input); err != nil {
			return runtime.Result{Outcome: runtime.Permanent, Error: err.Error(), Code: "bad_task"}
		}
	}
	return x.Run(ctx, t, sink{a: a})
}

// httpCall is the request of a task in the words of executors.
func httpCall(c *apiv1.HTTPCall, input []byte) (*runtime.HTTPCall, error) {
	r, err := job.FillRequest(c, input)
	if err != nil {
		return nil, err
	}
	call := &runtime.HTTPCall{Request: runtime.Request{Method: r.Method, URL: r.URL, Header: map[string][]string{}, Body: r.Body}, Timeout: r.Timeout}
	for name, value := range r.Headers {
		call.Request.Header[name] = []string{value}
	}
	for _, e := range r.Expect {
		call.Expect = append(call.Expect, runtime.StatusRange{First: e[0], Last: e[1]})
	}
	return call, nil
}
