package greet

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// story is the observable result of a run.
type story struct {
	Outcome  runtime.Outcome
	Output   string
	Code     string
	Log      []string
	Progress []string
}

// teller is a sink that records the log and the progress in a story.
type teller struct{ s *story }

func (t teller) Log(_ runtime.Level, line []byte) { t.s.Log = append(t.s.Log, string(line)) }

func (t teller) Progress(done, total int64, message string) {
	if done == 0 || done == total { // the number of calls between depends on speed
		t.s.Progress = append(t.s.Progress, message)
	}
}

// tell runs a module once for each input.
func tell(t *testing.T, code []byte, inputs ...string) []story {
	t.Helper()
	info, err := wasm.Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	engine, err := wasm.New(ctx, wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(ctx)
	if err := engine.Load(ctx, info.Digest, code); err != nil {
		t.Fatal(err)
	}
	var stories []story
	for _, input := range inputs {
		var s story
		r := engine.Run(ctx, runtime.Task{Digest: info.Digest, Input: []byte(input), Attempt: 1}, teller{&s})
		s.Outcome, s.Output, s.Code = r.Outcome, string(r.Output), r.Code
		stories = append(stories, s)
	}
	return stories
}

var (
	inputs = []string{"Ada\n", "", strings.Repeat("x", 201)}
	want   = []story{
		{Outcome: runtime.Succeeded, Output: "Hello, Ada!\n", Log: []string{"attempt 1", "greeting Ada", "done"}, Progress: []string{"reading the input", "done"}},
		{Outcome: runtime.Succeeded, Output: "Hello, world!\n", Log: []string{"attempt 1", "greeting world", "done"}, Progress: []string{"reading the input", "done"}},
		{Outcome: runtime.Permanent, Code: "name_too_long", Progress: []string{"reading the input"}},
	}
)

func TestPrebuilt(t *testing.T) {
	code, err := os.ReadFile("greet.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tell(t, code, inputs...)); diff != "" {
		t.Errorf("greet.wasm (-want +got):\n%s", diff)
	}
	if len(code) > 4<<10 {
		t.Errorf("greet.wasm has %d bytes, the README promises less than 4 KiB", len(code))
	}
}

// TestRebuilt compiles greet.c with the command in the README.
func TestRebuilt(t *testing.T) {
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		testkit.Lacks(t, "needs %s (Debian packages clang and lld), which is not installed", tool)
	}
	file := filepath.Join(t.TempDir(), "greet.wasm")
	cmd := exec.Command("clang", "--target=wasm32", "-O2", "-mbulk-memory", "-Wall", "-Werror", "-nostdlib",
		"-Wl,--no-entry", "-Wl,-z,stack-size=8192", "-Wl,--strip-debug", "-o", file, "greet.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tell(t, code, inputs...)); diff != "" {
		t.Errorf("rebuilt greet.c (-want +got):\n%s", diff)
	}
}
