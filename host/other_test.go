package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// told is an executor whose output describes its task.
type told string

func (e told) Run(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
	out := fmt.Sprintf("%s: %s/%s %s %s", e, t.Module, t.Handler, t.Command, t.Input)
	if c := t.HTTP; c != nil {
		out += fmt.Sprintf(" %s %s %s %v %v %s", c.Request.Method, c.Request.URL, c.Request.Body, c.Request.Header, c.Expect, c.Timeout)
	}
	return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(out)}
}

// A handler outside modules goes to the executor that its name requires, and the host
// reports its executors to the server.
func TestHandlersInNoModule(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(func(c *Config) {
			c.Slots = 1 // one after the other
			c.ABI = []string{"wasi-p1"}
			c.Others = map[string]runtime.Executor{"plugin:images": told("plugin"), "builtin:http": told("http"), "builtin:exec": told("exec"), "builtin:exec/dump": told("exec")}
		})
		hello := <-b.server.hello
		if want := []string{"wasi-p1", "builtin:exec", "builtin:exec/dump", "builtin:http", "plugin:images"}; !slices.Equal(hello.Abi, want) {
			t.Errorf("abi: %q", hello.Abi)
		}
		for n, tt := range []struct {
			change func(*apiv1.Task)
			want   string // the output, or the error
		}{
			{func(t *apiv1.Task) { t.Handler = "plugin:images/resize" }, "plugin: images/resize  {}"},
			{func(t *apiv1.Task) { t.Handler, t.Command = "builtin:exec", "dump" }, "exec: exec/ dump {}"},
			{func(t *apiv1.Task) {
				t.Handler, t.Input = "builtin:http", []byte(`{"n":7}`)
				t.Http = &apiv1.HTTPCall{Url: "https://a.example/${input.n}", Headers: map[string]string{"A": "b"}, Expect: []string{"2xx"}, Timeout: "3s"}
			}, `http: http/  {"n":7} POST https://a.example/7 {"n":7} map[A:[b]] [{200 299}] 3s`},
			{func(t *apiv1.Task) {
				t.Handler, t.Http = "builtin:http", &apiv1.HTTPCall{Url: "https://a.example/${input.n}"}
			}, "url: "},
			{func(t *apiv1.Task) { t.Handler = "plugin:videos/cut" }, "this host does not run plugin:videos"},
			{func(t *apiv1.Task) { t.Handler = "native:settle" }, "this host does not run native:settle"},
			{func(t *apiv1.Task) { t.Handler = "builtin:later" }, "is not built in"},
		} {
			task := aTask(byte(n + 1))
			task.Module, task.Digest, task.Input = "", "", []byte("{}")
			tt.change(task)
			b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{task}}
			r := b.server.results().Results[0]
			got := string(r.Output)
			if r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
				got = r.Error
			}
			if !strings.HasPrefix(got, tt.want) && !strings.Contains(got, tt.want) {
				t.Errorf("%s: %v %q", task.Handler, r.Outcome, got)
			}
		}
		stop()
	})
}
