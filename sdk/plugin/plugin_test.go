package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
)

// The tests in runtime/plugin cover a plugin together with its host, with real processes.

func TestServeRefuses(t *testing.T) {
	handlers := map[string]Func{"main": func(context.Context, *Task) ([]byte, error) { return nil, nil }}
	for _, tt := range []struct {
		cookie, versions, cert string
		cfg                    Config
		want                   string
	}{
		{"", "1", "", Config{Handlers: handlers}, "is a plugin of Wheelwork"},
		{cookieValue, "2,3", "", Config{Handlers: handlers}, "build it with a newer SDK"},
		{cookieValue, "2,1", "", Config{}, "Config.Handlers is empty"},
		{cookieValue, "1", "", Config{Handlers: handlers, Concurrency: 1025}, "it must be 1 to 1024"},
		{cookieValue, "1", "no certificate", Config{Handlers: handlers}, "PLUGIN_CLIENT_CERT holds no certificate"},
	} {
		t.Setenv(cookieKey, tt.cookie)
		t.Setenv("PLUGIN_PROTOCOL_VERSIONS", tt.versions)
		t.Setenv("PLUGIN_CLIENT_CERT", tt.cert)
		if err := serve(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.want, err)
		}
	}
}

func TestResult(t *testing.T) {
	live, stopped := context.WithCancel(t.Context())
	stopped()
	base := errors.New("no")
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want *pluginv1.Result
	}{
		{"ok", t.Context(), nil, &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED}},
		{"plain", t.Context(), base, &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_RETRYABLE, Error: "no"}},
		{
			"all at once", t.Context(), fmt.Errorf("a: %w", Permanent(Coded(RetryAfter(base, time.Second), "c"))),
			&pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_PERMANENT, Error: "a: no", Code: "c", RetryAfterMs: 1000},
		},
		{"the outer code counts", t.Context(), Coded(Coded(base, "inner"), "outer"), &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_RETRYABLE, Error: "no", Code: "outer"}},
		{"asked to end", live, Permanent(base), &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_STOPPED, Error: "no"}},
		{"done all the same", live, nil, &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED}},
		{"not UTF-8", t.Context(), errors.New("\xff"), &pluginv1.Result{Outcome: pluginv1.Outcome_OUTCOME_RETRYABLE, Error: "\uFFFD"}},
	} {
		got := result(tt.ctx, 7, nil, tt.err)
		if got.Id != 7 || got.Outcome != tt.want.Outcome || got.Error != tt.want.Error || got.Code != tt.want.Code || got.RetryAfterMs != tt.want.RetryAfterMs {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for _, f := range []func() error{func() error { return Permanent(nil) }, func() error { return RetryAfter(nil, 1) }, func() error { return Coded(nil, "x") }} {
		if f() != nil {
			t.Error("no error has become one")
		}
	}
	if !errors.Is(Permanent(Coded(base, "c")), base) {
		t.Error("the cause is hidden")
	}
}

// drain returns all messages of an outbox.
func drain(o *outbox) (messages []*pluginv1.FromPlugin) {
	for {
		m, _ := o.next()
		if m == nil {
			return messages
		}
		messages = append(messages, m)
	}
}

// TestOutboxIsBounded uses a handler that logs faster than the host reads. The outbox
// neither blocks the handler nor grows without bound, and the log lines written before a
// result are sent before it.
func TestOutboxIsBounded(t *testing.T) {
	o := newOutbox()
	line := strings.Repeat("x", 2*maxLine)
	for range 3 * maxHeld / maxLine {
		o.log(1, slog.LevelInfo, line)
	}
	if o.held > maxHeld {
		t.Errorf("%d bytes are held", o.held)
	}
	for n := range 100 {
		o.progress(&pluginv1.Progress{Id: 1, Done: int64(n)})
	}
	o.result(&pluginv1.Result{Id: 1})
	lines, dropped, ended := 0, false, false
	for _, m := range drain(o) {
		size := 0
		for _, l := range m.Logs {
			size += len(l.Text)
			dropped = dropped || l.Id == 0 && strings.Contains(l.Text, "were dropped")
		}
		if size > maxMessageBytes+maxLine {
			t.Errorf("a message with %d bytes", size)
		}
		for _, p := range m.Progress {
			if p.Done != 99 {
				t.Errorf("progress %d is not the latest", p.Done)
			}
		}
		if ended && len(m.Logs) > 0 {
			t.Error("a line comes behind the result")
		}
		lines += len(m.Logs)
		ended = ended || len(m.Results) > 0
	}
	if !ended || !dropped || lines > maxHeld/maxLine+1 || o.held != 0 {
		t.Errorf("ended %v, said that lines were dropped %v, %d lines, %d bytes still held", ended, dropped, lines, o.held)
	}
}

func TestOutboxSplitsResults(t *testing.T) {
	o := newOutbox()
	for id := range uint64(10) {
		o.result(&pluginv1.Result{Id: id, Output: make([]byte, 1<<20)})
	}
	seen := uint64(0)
	for _, m := range drain(o) {
		size := 0
		for _, r := range m.Results {
			size += len(r.Output)
			if r.Id != seen {
				t.Errorf("result %d, want %d", r.Id, seen)
			}
			seen++
		}
		if size > maxMessageBytes {
			t.Errorf("a message with %d bytes", size)
		}
	}
	if seen != 10 {
		t.Errorf("%d results", seen)
	}
	o.close()
	if m, closed := o.next(); m != nil || !closed {
		t.Error("it does not end")
	}
}
