// Package conformance holds one handler in each language with an SDK, and the table of
// cases that every one of them must pass; see README.md.
package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

var update = flag.Bool("update", false, "build the fixtures and write them to testdata")

// manifestOf returns a manifest with the two handlers. Scripts take one task at a time.
func manifestOf(batch bool) string {
	return fmt.Sprintf(`{"handlers":[{"name":"main","batch":%t},{"name":"second"}]}`, batch)
}

// compiled lists the languages with a fixture, and the SDK's file of each.
var compiled = []struct{ language, main, sdk string }{
	{toolchain.C, "main.c", "c/wheelwork.h"},
	{toolchain.Rust, "main.rs", "rust/wheelwork.rs"},
	{toolchain.Zig, "main.zig", "zig/wheelwork.zig"},
	{toolchain.AssemblyScript, "main.ts", "assemblyscript/wheelwork.ts"},
}

// build compiles the handler of a language like "module build".
func build(t *testing.T, language, main, sdk string) []byte {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(filepath.Join(language, main))
	if err != nil {
		t.Fatal(err)
	}
	text, err := guest.Files.ReadFile(sdk)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{main: source, filepath.Base(sdk): text} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return compile(t, toolchain.Source{Language: language, Dir: dir, Main: main, Batch: true})
}

func compile(t *testing.T, s toolchain.Source) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "handler.wasm")
	err := toolchain.Build(t.Context(), s, out)
	var missing *toolchain.MissingError
	if errors.As(err, &missing) {
		testkit.Lacks(t, "%v", missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// pack makes a module of a script and loads its interpreter.
func pack(t *testing.T, engine *wasm.Engine, language, main, sdk string) []byte {
	t.Helper()
	known, _ := script.ByLanguage(language)
	dir, err := interpreter.Dir()
	if err != nil {
		t.Fatal(err)
	}
	code, err := interpreter.Load(dir, known)
	if errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Load(t.Context(), known.Digest, code); err != nil {
		t.Fatal(err)
	}
	s := script.Script{Language: language, Interpreter: known.Digest, Main: main, Files: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(language, main))
	if err != nil {
		t.Fatal(err)
	}
	s.Files[main] = string(text)
	if text, err = guest.Files.ReadFile(sdk); err != nil {
		t.Fatal(err)
	}
	s.Files[filepath.Base(sdk)] = string(text)
	packed, err := script.Pack(s)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func newEngine(t *testing.T, services runtime.Services) *wasm.Engine {
	t.Helper()
	engine, err := wasm.New(t.Context(), wasm.Config{Services: services})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	return engine
}

// load prepares a handler for execution, with the manifest that names its two entries.
func load(t *testing.T, engine *wasm.Engine, code []byte) (digest string) {
	t.Helper()
	_, err := script.Unpack(code)
	if code, err = wasm.WithManifest(code, manifestOf(errors.Is(err, script.ErrNotScript))); err != nil {
		t.Fatal(err)
	}
	info, err := wasm.Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Load(t.Context(), info.Digest, code); err != nil {
		t.Fatal(err)
	}
	return info.Digest
}

// TestConformance runs the table with the handler of every language.
func TestConformance(t *testing.T) {
	run := func(name string, code func(t *testing.T, engine *wasm.Engine) []byte) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services := newServices()
			engine := newEngine(t, services)
			conform(t, engine, services, load(t, engine, code(t, engine)))
		})
	}
	for _, l := range compiled {
		run(l.language, func(t *testing.T, _ *wasm.Engine) []byte {
			code, err := os.ReadFile(filepath.Join("testdata", l.language+".wasm"))
			if err != nil {
				t.Fatal(err)
			}
			return code
		})
	}
	run("go", func(t *testing.T, _ *wasm.Engine) []byte {
		return compile(t, toolchain.Source{Language: toolchain.Go, Dir: "go"})
	})
	run("javascript", func(t *testing.T, engine *wasm.Engine) []byte {
		return pack(t, engine, script.JavaScript, "main.js", "js/wheelwork.js")
	})
	run("python", func(t *testing.T, engine *wasm.Engine) []byte {
		if testing.Short() {
			t.Skip("starting an interpreter of 26 MB for each case takes long")
		}
		return pack(t, engine, script.Python, "main.py", "python/wheelwork.py")
	})
}

// TestFixtures rebuilds the fixtures and runs the table with them; with -update it writes
// them.
func TestFixtures(t *testing.T) {
	for _, l := range compiled {
		t.Run(l.language, func(t *testing.T) {
			t.Parallel()
			services := newServices()
			engine := newEngine(t, services)
			code := build(t, l.language, l.main, l.sdk)
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", l.language+".wasm"), code, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			conform(t, engine, services, load(t, engine, code))
		})
	}
}

// said is the output of a task besides its result.
type said struct {
	Lines    []string // level and text
	Progress string   // the last report
}

// sink records the reports of a handler.
type sink struct {
	mu    sync.Mutex
	said  said
	onLog func()
}

func (s *sink) Log(level runtime.Level, line []byte) {
	s.mu.Lock()
	s.said.Lines = append(s.said.Lines, fmt.Sprintf("%d %s", level, line))
	s.mu.Unlock()
	if s.onLog != nil {
		s.onLog()
	}
}

func (s *sink) Progress(done, total int64, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.Progress = fmt.Sprintf("%d/%d %s", done, total, message)
}

// conform runs the table.
func conform(t *testing.T, engine *wasm.Engine, services *services, digest string) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // a megabyte
	odd := []byte("\x00\xff\xfe ünï 漢字 \U0001f600\r\n")
	long := strings.Repeat("ü", 300) // longer than the first buffer of an SDK
	hash := func(data []byte) string {
		h := fnv.New32a()
		h.Write(data)
		return fmt.Sprintf("%08x", h.Sum32())
	}
	grants := &runtime.Grants{
		HTTP:    []runtime.HTTPGrant{{Host: "example.com", Methods: []string{"POST"}}},
		KV:      []runtime.Bucket{{Name: "state", Write: true}},
		Secrets: []string{"token"},
		Enqueue: []string{"next"},
	}
	task := func(name string) runtime.Task {
		return runtime.Task{
			RunID: "r1", App: "shop", Job: "settle", Attempt: 2, MaxAttempt: 5, Module: "m", Digest: digest, Handler: "main",
			Env: map[string]string{"CASE": name}, Deadline: time.Now().Add(time.Minute), Grants: grants,
		}
	}
	ok := func(output string) runtime.Result {
		return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(output)}
	}
	tests := []struct {
		name   string
		change func(*runtime.Task)
		want   runtime.Result
		said   said
	}{
		{name: "echo", change: func(t *runtime.Task) { t.Input = []byte("hello") }, want: ok("hello")},
		{name: "echo nothing", change: func(t *runtime.Task) { t.Env = nil }, want: ok("")},
		{name: "echo odd bytes", change: func(t *runtime.Task) { t.Env, t.Input = nil, odd }, want: ok(string(odd))},
		{name: "echo much", change: func(t *runtime.Task) { t.Env, t.Input = nil, big }, want: ok(string(big))},
		{
			name: "echo too much", change: func(t *runtime.Task) { t.Env, t.Input, t.Limits.OutputBytes = nil, big, 1<<20-1 },
			want: runtime.Result{
				Outcome: runtime.Permanent, Code: "output_limit",
				Error: "the output exceeds its limit of 1048575 bytes: write less or raise the limit",
			},
		},
		{
			name: "params", change: func(t *runtime.Task) { t.Env["GREETING"], t.Env["LONG"] = "grüezi", long },
			want: ok("run_id=r1\napp=shop\njob=settle\nattempt=2\nmax_attempts=5\nGREETING=grüezi\nLONG=" + long + "\nmissing!\n"),
		},
		{name: "checksum", change: func(t *runtime.Task) { t.Input = odd }, want: ok(hash(odd))},
		{name: "retryable", want: runtime.Result{Outcome: runtime.Retryable, Code: "busy", Error: "try later: é", RetryAfter: 1500 * time.Millisecond}},
		{name: "permanent", want: runtime.Result{Outcome: runtime.Permanent, Code: "bad_input", Error: "cannot do that"}},
		{name: "nonsense", want: runtime.Result{Outcome: runtime.Permanent, Code: "no_case", Error: "nonsense"}},
		{name: "logs", want: ok(""), said: said{Lines: []string{"0 fine", "1 one", "1 two", "2 beware: ünï", "3 漢字"}}},
		{name: "progress", want: ok(""), said: said{Progress: "4/4 all ✓"}},
		{name: "second", change: func(t *runtime.Task) { t.Handler = "second" }, want: ok("second")},
		{name: "sleep", want: ok("slept")},
		{name: "kv", want: ok("no entry\none\nconflict\ntwo\nno entry\nnot granted\n")},
		{name: "secret", want: ok("s3cret ü")},
		{name: "secret that is not granted", change: func(t *runtime.Task) { t.Env["CASE"], t.Grants = "secret", nil }, want: ok("not granted\n")},
		{name: "enqueue", want: ok("run-of-next")},
		{name: "map", want: ok("")},
		{name: "http", change: func(t *runtime.Task) { t.Input = []byte("https://example.com/in") }, want: ok("{\"status\":201\nPOST https://example.com/in ping http " + strings.Repeat("x", 9000))},
		{name: "http that is not granted", change: func(t *runtime.Task) { t.Env["CASE"], t.Input = "http", []byte("https://example.org/") }, want: ok("not granted\n")},
		{name: "metric", want: ok("")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			services.reset()
			task := task(tt.name)
			if tt.change != nil {
				tt.change(&task)
			}
			sink := &sink{}
			got := engine.Run(t.Context(), task, sink)
			got.Duration, got.Trace = 0, ""
			if got.Outcome != runtime.Succeeded {
				got.Output = nil
			}
			if diff := gocmp.Diff(tt.want, got, gocmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
				t.Errorf("result (-want +got):\n%s", cut(diff))
			}
			sink.said.Lines = withoutDenials(sink.said.Lines)
			if diff := gocmp.Diff(tt.said, sink.said); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("clock", func(t *testing.T) {
		before := time.Now().UnixMilli()
		got := engine.Run(t.Context(), task("clock"), &sink{})
		now, err := strconv.ParseInt(string(got.Output), 10, 64)
		if err != nil || now < before || now > time.Now().UnixMilli() {
			t.Errorf("the clock says %s (%v), it was read after %d", got.Output, err, before)
		}
	})
	t.Run("random", func(t *testing.T) {
		first, second := engine.Run(t.Context(), task("random"), &sink{}), engine.Run(t.Context(), task("random"), &sink{})
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).Match(first.Output) || bytes.Equal(first.Output, second.Output) {
			t.Errorf("random bytes of two tasks: %s and %s", first.Output, second.Output)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sink := &sink{onLog: cancel}
		if got := engine.Run(ctx, task("cancelled"), sink); got.Outcome != runtime.Stopped {
			t.Errorf("result = %+v", got)
		}
		if diff := gocmp.Diff(said{Lines: []string{"1 waiting"}}, sink.said); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	})
	t.Run("checkpoint", func(t *testing.T) {
		services.reset()
		first := engine.Run(t.Context(), task("checkpoint"), &sink{})
		if first.Outcome != runtime.Retryable || first.Code != "again" {
			t.Errorf("the first attempt = %+v", first)
		}
		second := engine.Run(t.Context(), task("checkpoint"), &sink{})
		if second.Outcome != runtime.Succeeded || string(second.Output) != "step 1" {
			t.Errorf("the second attempt = %+v", second)
		}
	})
	t.Run("what services were asked", func(t *testing.T) {
		services.reset()
		for _, name := range []string{"enqueue", "map", "metric"} {
			if got := engine.Run(t.Context(), task(name), &sink{}); got.Outcome != runtime.Succeeded {
				t.Fatalf("%s = %+v", name, got)
			}
		}
		want := []string{"enqueue next hello", "map a", "map ", "map ccc", "metric orders 0 2.5", "metric load 1 0.25", "metric size 2 7"}
		if diff := gocmp.Diff(want, services.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	})
	if engine.Batches(digest, "main") {
		t.Run("batch", func(t *testing.T) { conformBatch(t, engine, task) })
	}
}

// conformBatch runs tasks with different results in one call of the guest.
func conformBatch(t *testing.T, engine *wasm.Engine, task func(string) runtime.Task) {
	var items []*runtime.Item
	for i, name := range []string{"echo", "permanent", "echo", "retryable", "checksum"} {
		task := task(name)
		task.Input = []byte{byte('a' + i)}
		items = append(items, &runtime.Item{Ctx: t.Context(), Task: task, Sink: &sink{}})
	}
	engine.RunBatch(items)
	var got []string
	for _, item := range items {
		got = append(got, fmt.Sprintf("%d %s %s", item.Result.Outcome, item.Result.Code, item.Result.Output))
	}
	want := []string{"1  a", "3 bad_input ", "1  c", "2 busy ", "1  e00c2f2e"}
	want[4] = "1  " + func() string { h := fnv.New32a(); h.Write([]byte("e")); return fmt.Sprintf("%08x", h.Sum32()) }()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// withoutDenials removes the lines in which the host reports refused calls.
func withoutDenials(lines []string) (kept []string) {
	for _, line := range lines {
		if !strings.Contains(line, runtime.ErrNotGranted.Error()) {
			kept = append(kept, line)
		}
	}
	return kept
}

// cut keeps the message about a large difference readable.
func cut(s string) string { return s[:min(len(s), 2000)] }

// services replaces a server, which is outside of the runtime.
type services struct {
	mu         sync.Mutex
	values     map[string]entry
	version    uint64
	checkpoint []byte
	asked      []string
}

type entry struct {
	value   []byte
	version uint64
}

func newServices() *services {
	s := &services{}
	s.reset()
	return s
}

func (s *services) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.version, s.checkpoint, s.asked = map[string]entry{}, 7, nil, nil
}

func (s *services) note(format string, args ...any) {
	s.asked = append(s.asked, fmt.Sprintf(format, args...))
}

func (s *services) Checkpoint(context.Context, *runtime.Task) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checkpoint == nil {
		return nil, runtime.ErrNoEntry
	}
	return s.checkpoint, nil
}

func (s *services) SetCheckpoint(_ context.Context, _ *runtime.Task, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = bytes.Clone(data)
	return nil
}

func (s *services) Get(_ context.Context, _ *runtime.Task, bucket, key string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.values[bucket+"/"+key]
	if !ok {
		return nil, 0, runtime.ErrNoEntry
	}
	return e.value, e.version, nil
}

func (s *services) Put(_ context.Context, _ *runtime.Task, bucket, key string, value []byte, expect uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.values[bucket+"/"+key]; expect != runtime.AnyVersion && expect != e.version {
		return 0, runtime.ErrConflict
	}
	s.version++
	s.values[bucket+"/"+key] = entry{bytes.Clone(value), s.version}
	return s.version, nil
}

func (s *services) Delete(_ context.Context, _ *runtime.Task, bucket, key string, expect uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.values[bucket+"/"+key]
	switch {
	case !ok:
		return runtime.ErrNoEntry
	case expect != runtime.AnyVersion && expect != e.version:
		return runtime.ErrConflict
	}
	delete(s.values, bucket+"/"+key)
	return nil
}

func (s *services) Enqueue(_ context.Context, _ *runtime.Task, m runtime.Submit) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("enqueue %s %s", m.Job, m.Input)
	return "run-of-" + m.Job, nil
}

func (s *services) Map(_ context.Context, _ *runtime.Task, _ int, inputs [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, input := range inputs {
		s.note("map %s", input)
	}
	return nil
}

func (s *services) Secret(context.Context, *runtime.Task, string) ([]byte, error) {
	return []byte("s3cret ü"), nil
}

func (s *services) Send(_ context.Context, _ *runtime.Task, r runtime.Request) (*runtime.Response, error) {
	body := fmt.Sprintf("%s %s %s %s %s", cmp.Or(r.Method, "GET"), r.URL, r.Body, http.Header(r.Header).Get("X-Case"), strings.Repeat("x", 9000))
	header := http.Header{}
	for key := range maps.Keys(r.Header) {
		header.Set("Got-"+key, "yes")
	}
	return &runtime.Response{Status: http.StatusCreated, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (s *services) Metric(_ context.Context, _ *runtime.Task, name string, kind runtime.MetricKind, value float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("metric %s %d %v", name, kind, value)
	return nil
}
