package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// recorder is a sink that records its calls. It calls onLog, if set, for each line.
type recorder struct {
	lines  []string
	levels []runtime.Level
	last   [2]int64
	text   string
	onLog  func()
}

func (r *recorder) Log(level runtime.Level, line []byte) {
	r.lines = append(r.lines, string(line))
	r.levels = append(r.levels, level)
	if r.onLog != nil {
		r.onLog()
	}
}

func (r *recorder) Progress(done, total int64, message string) {
	r.last, r.text = [2]int64{done, total}, message
}

// build compiles the example and returns an engine that has loaded it, and its digest.
func build(t *testing.T) (*wasm.Engine, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "progress.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := wasm.Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	engine, err := wasm.New(ctx, wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(ctx) })
	if err := engine.Load(ctx, info.Digest, code); err != nil {
		t.Fatal(err)
	}
	return engine, info.Digest
}

func TestProgress(t *testing.T) {
	engine, digest := build(t)
	t.Run("works through its steps", func(t *testing.T) {
		for range 2 { // the second task gets the same instance after a reset
			sink := &recorder{}
			r := engine.Run(context.Background(), runtime.Task{Digest: digest, Input: []byte("3\n"), Attempt: 2}, sink)
			if r.Outcome != runtime.Succeeded || string(r.Output) != "3 steps done\n" {
				t.Fatalf("result = %+v", r)
			}
			want := []string{"starting steps=3 attempt=2", "step done step=1", "step done step=2", "step done step=3", "done"}
			if diff := cmp.Diff(want, sink.lines); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			if sink.levels[0] != runtime.LevelInfo || sink.levels[1] != runtime.LevelDebug {
				t.Errorf("levels = %v", sink.levels)
			}
			if sink.last != [2]int64{3, 3} || sink.text != "all steps done" {
				t.Errorf("progress = %v %q", sink.last, sink.text)
			}
		}
	})
	t.Run("refuses bad input for good", func(t *testing.T) {
		r := engine.Run(context.Background(), runtime.Task{Digest: digest, Input: []byte("many")}, &recorder{})
		if r.Outcome != runtime.Permanent || r.Code != "bad_input" || !strings.Contains(r.Error, `"many"`) {
			t.Errorf("result = %+v", r)
		}
	})
	t.Run("stops when it is cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		sink := &recorder{onLog: cancel} // cancels once the handler has started
		start := time.Now()
		r := engine.Run(ctx, runtime.Task{Digest: digest, Input: []byte("1000000"), Env: map[string]string{"STEP_MS": "10"}}, sink)
		if r.Outcome != runtime.Stopped || time.Since(start) > 5*time.Second {
			t.Errorf("result = %+v after %v", r, time.Since(start))
		}
	})
}
