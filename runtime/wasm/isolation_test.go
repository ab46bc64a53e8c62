package wasm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/local"
)

// secretText is the input of the fixture leaky, which stores its input wherever a module
// can store something, and first outputs what it finds there. See leaky.wat.
const secretText = "S3CRETS3"

// TestNoSecretIsFound runs tasks of two apps and of one app, with every kind of reuse. A
// task must not find what an earlier one left in memory, grown memory, globals of each
// type, tables, dropped segments or files.
func TestNoSecretIsFound(t *testing.T) {
	for _, reuse := range []string{"", "reset", "fresh"} {
		manifest := `{"kind":"reactor"}`
		if reuse != "" {
			manifest = `{"reuse":"` + reuse + `"}`
		}
		for _, name := range []string{"leaky", "leakytable"} {
			e := newEngine(t, Config{})
			digest := load(t, e, withSection(fixture(t, name), abi.ManifestSection, manifest))
			clean := ""
			for i, input := range []string{"", secretText, "", secretText, secretText, "", "T", "G", "", secretText, ""} {
				task := runtime.Task{App: []string{"one", "two"}[i/2%2], Digest: digest, Input: []byte(input), Deadline: within(20 * time.Second)}
				r := e.Run(context.Background(), task, &recorder{})
				switch {
				case input == "T": // leaves everything, then traps
					if r.Code != "trap" {
						t.Errorf("%s %q: %+v", name, reuse, r)
					}
					continue
				case r.Outcome != runtime.Succeeded:
					t.Fatalf("%s %q: %+v", name, reuse, r)
				case i == 0:
					clean = string(r.Output)
				}
				if string(r.Output) != clean || strings.Contains(string(r.Output), secretText) {
					t.Errorf("%s, reuse %q, task %d found %q, the first one %q", name, reuse, i, r.Output, clean)
				}
			}
		}
	}
}

// TestReuseIsAsDeclared checks the number of idle instances after tasks.
func TestReuseIsAsDeclared(t *testing.T) {
	for reuse, want := range map[string]int{"reset": 1, "fresh": 0} {
		e := newEngine(t, Config{})
		digest := load(t, e, withSection(fixture(t, "leaky"), abi.ManifestSection, `{"reuse":"`+reuse+`"}`))
		for range 3 {
			e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
		}
		if n := idle(e); n != want {
			t.Errorf("reuse %q keeps %d instances, want %d", reuse, n, want)
		}
	}
}

// idle returns the number of idle instances.
func idle(e *Engine) int { return e.pool.len() }

// TestServicesAreOfTheirTask checks that a task has its own handles and counts.
func TestServicesAreOfTheirTask(t *testing.T) {
	a := &answers{}
	bodies := []*stream{{pieces: []string{secretText}}, {pieces: []string{secretText}}}
	for _, b := range bodies {
		a.bodies = append(a.bodies, b)
	}
	services := &local.Services{Sender: a.send}
	p := newPlayer(t, Config{Services: services})
	p.task.Grants = everything()
	s := newScript(t)
	s.call("http_send", `{"url":"https://api.example/v1/"}`, "")
	s.call("checkpoint_put", secretText)
	s.call("kv_put", "b", "k", secretText)
	if d := p.play(s); d.result(0) != 1 {
		t.Fatalf("handle %d", d.result(0))
	}
	s = newScript(t)
	read := s.call("http_recv", uint64(1), 20)
	saved := s.call("checkpoint_get", 20)
	value := s.call("kv_get", "b", "k", 20, uint64(0))
	d := p.play(s, func(task *runtime.Task) { task.App, task.RunID = "other", "r2" })
	if d.result(read) != -8 || d.result(saved) != -44 || d.result(value) != -44 {
		t.Errorf("another app's task got %d, %d, %d", d.result(read), d.result(saved), d.result(value))
	}
	if !bodies[0].closed {
		t.Error("the body was left open")
	}
}
