package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// TestGuestsThatNeverBegin checks that the deadline also bounds the code that runs before a
// handler, with every kind of reuse and in a batch.
func TestGuestsThatNeverBegin(t *testing.T) {
	for _, name := range []string{"starts", "initialises"} {
		for _, manifest := range []string{`{}`, `{"reuse":"fresh"}`, `{"reuse":"shared"}`} {
			e := newEngine(t, Config{})
			digest := load(t, e, withSection(fixture(t, name), abi.ManifestSection, manifest))
			punctual(t, name+" "+manifest, attackTime, late, func() time.Duration {
				start := time.Now()
				r := e.Run(context.Background(), runtime.Task{Digest: digest, Deadline: start.Add(attackTime)}, &recorder{})
				if r.Outcome != runtime.TimedOut || r.Code != "deadline" {
					t.Errorf("%s %s: %+v", name, manifest, r)
				}
				return time.Since(start)
			})
			if n := idle(e); n != 0 {
				t.Errorf("%s %s: %d instances wait that never began", name, manifest, n)
			}
		}
	}
	e := newEngine(t, Config{})
	digest := load(t, e, withSection(fixture(t, "initialises"), abi.ManifestSection, `{"handlers":[{"name":"main","batch":true}]}`))
	items := make([]*runtime.Item, 3)
	for i := range items {
		items[i] = &runtime.Item{Ctx: context.Background(), Task: runtime.Task{Digest: digest}, Timeout: 10 * time.Millisecond, Sink: &recorder{}}
	}
	e.RunBatch(items)
	for i, item := range items {
		if item.Result.Outcome != runtime.TimedOut {
			t.Errorf("task %d of a batch: %+v", i, item.Result)
		}
	}
}

// TestDescriptionsThatNeverBegin checks that Pack refuses a module that hangs before its
// wheelwork_describe is called.
func TestDescriptionsThatNeverBegin(t *testing.T) {
	for _, name := range []string{"starts", "initialises"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Pack(t.Context(), fixture(t, name), "")
			if !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), "wheelwork_describe failed (the handler did not end before its deadline)") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWhatIsNoText checks that errors, codes and progress are always UTF-8, and that a log
// stays within its limits.
func TestWhatIsNoText(t *testing.T) {
	b := newBesieged(t)
	sink := &recorder{}
	r := b.engine.Run(context.Background(), runtime.Task{
		Digest: b.attackers["garbage"], Handler: "garbage", Deadline: within(attackTime), Limits: runtime.Limits{LogLines: 10},
	}, sink)
	if r.Outcome != runtime.TimedOut {
		t.Errorf("%+v", r)
	}
	if len(sink.lines) != 11 || !strings.Contains(sink.lines[10], "log limit of 10 lines") {
		t.Errorf("%d lines: %q", len(sink.lines), sink.lines)
	}
	for _, line := range sink.lines {
		if strings.Contains(line, "\n") {
			t.Errorf("a line with a break: %q", line)
		}
	}
	if r, _ := b.attack(t.Context(), "unfit", 20*time.Second); !utf8.ValidString(r.Error) || !utf8.ValidString(r.Code) || !utf8.ValidString(r.Trace) {
		t.Errorf("%q %q %q", r.Error, r.Code, r.Trace)
	}
}

// TestGrowingAgainAndAgain checks that instances whose memory grew are freed, after many
// tasks.
func TestGrowingAgainAndAgain(t *testing.T) {
	e := newEngine(t, Config{MaxMemoryBytes: 64 << 20})
	digest := load(t, e, withHandlers(fixture(t, "memory"), "main", "fill"))
	for range 300 {
		r := e.Run(context.Background(), runtime.Task{Digest: digest, Limits: runtime.Limits{MemoryBytes: 32 << 20}, Deadline: within(20 * time.Second)}, &recorder{})
		if r.Outcome != runtime.Succeeded || u32(t, r.Output) != 512 {
			t.Fatalf("%+v", r)
		}
	}
	if n, used := idle(e), e.host.Memory.Used(); n != 0 || used != 0 {
		t.Errorf("%d instances wait whose memory grew, and %d bytes are taken", n, used)
	}
}

// TestCallersOfManyApps checks that a host does not retain an instance or a stack for every
// app that has ever run a task.
func TestCallersOfManyApps(t *testing.T) {
	e := newEngine(t, Config{MaxPoolBytes: 4 << 20})
	digest := load(t, e, withHandlers(fixture(t, "host"), hostHandlers...))
	for i := range 3 * maxStacks {
		r := e.Run(context.Background(), runtime.Task{App: fmt.Sprint("app", i), Digest: digest, Handler: "echo", Input: []byte("x"), Deadline: within(20 * time.Second)}, &recorder{})
		if r.Outcome != runtime.Succeeded {
			t.Fatalf("%+v", r)
		}
	}
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	if e.pool.bytes > 4<<20 || len(e.pool.stacks) > maxStacks+1 {
		t.Errorf("%d bytes wait in %d stacks", e.pool.bytes, len(e.pool.stacks))
	}
}
