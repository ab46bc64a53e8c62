package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// interpreted loads the interpreter of a language, or skips the test.
func interpreted(t testing.TB, e *Engine, language string) {
	t.Helper()
	if testing.Short() && language == scripts.Python {
		t.Skip("the interpreter of 26 MB takes long to compile")
	}
	known, _ := scripts.ByLanguage(language)
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
	load(t, e, code)
}

// packed returns a script of the given files, the first of which is its main file.
func packed(t testing.TB, language string, files ...string) []byte {
	t.Helper()
	known, _ := scripts.ByLanguage(language)
	from := "../../sdk/guest/js/wheelwork.js"
	if language == scripts.Python {
		from = "../../sdk/guest/python/wheelwork.py"
	}
	kit, err := os.ReadFile(filepath.FromSlash(from))
	if err != nil {
		t.Fatal(err)
	}
	s := scripts.Script{Language: language, Interpreter: known.Digest, Main: files[0], Files: map[string]string{filepath.Base(from): string(kit)}}
	for i := 0; i < len(files); i += 2 {
		s.Files[files[i]] = files[i+1]
	}
	code, err := scripts.Pack(s)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// runner loads a script and returns a function that runs its main handler.
func runner(t testing.TB, e *Engine, language string, files ...string) func(input string, change ...func(*runtime.Task)) (runtime.Result, *recorder) {
	t.Helper()
	digest := load(t, e, packed(t, language, files...))
	return func(input string, change ...func(*runtime.Task)) (runtime.Result, *recorder) {
		task := runtime.Task{Module: "m", Digest: digest, Input: []byte(input), Deadline: within(20 * time.Second)}
		for _, c := range change {
			c(&task)
		}
		sink := &recorder{}
		return e.Run(context.Background(), task, sink), sink
	}
}

// overdue is the error of a task that was ended at its deadline.
const overdue = "the handler did not end before its deadline"

func soon(t *runtime.Task) { t.Deadline = within(200 * time.Millisecond) }

const javascript = `
import { greet } from "./lib/greet.js";

let runs = 0;
await null; // at the top, before there is a task

export default async function main(ctx) {
  runs++;
  await null;
  switch (ctx.text()) {
    case "loop": for (;;);
    case "promises": for (;;) await null;
    case "recursion": { const f = () => f() + 1; return f(); }
    case "memory": { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); }
    case "never": return new Promise(() => {});
    case "keep": globalThis.secret = "hunter2"; Object.prototype.secret = "hunter2"; return "kept";
    case "find": return String(globalThis.secret) + ({}).secret + typeof globalThis.__wheelwork_host;
    case "random": return String(Math.random());
    case "big": return "x".repeat(2 << 20);
    case "throw": throw "a text";
    case "undefined": return;
    case "json": return { a: [1, null, "é"] };
  }
  return greet(ctx.text()) + runs;
}
`

func TestJavaScript(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.JavaScript)
	run := runner(t, e, scripts.JavaScript, "main.js", javascript, "lib/greet.js", `import { word } from "../word.js"; export const greet = (name) => word + name;`, "word.js", `export const word = "hello ";`)
	for _, tt := range []struct {
		input  string
		change func(*runtime.Task)
		want   runtime.Result
	}{
		{input: "Ada", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello Ada1")}},
		{input: "Ada", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello Ada1")}}, // nothing carries over
		{input: "undefined", want: runtime.Result{Outcome: runtime.Succeeded}},
		{input: "json", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte(`{"a":[1,null,"é"]}`)}},
		{input: "keep", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("kept")}},
		{input: "find", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("undefinedundefinedundefined")}},
		{input: "loop", change: soon, want: runtime.Result{Outcome: runtime.TimedOut, Code: guest.CodeDeadline, Error: overdue}},
		{input: "promises", change: soon, want: runtime.Result{Outcome: runtime.TimedOut, Code: guest.CodeDeadline, Error: overdue}},
		{input: "recursion", want: runtime.Result{Outcome: runtime.Retryable, Code: "exception", Error: "RangeError: Maximum call stack size exceeded"}},
		{input: "memory", change: func(t *runtime.Task) { t.Limits.MemoryBytes = 16 << 20 }, want: runtime.Result{Outcome: runtime.Retryable, Code: "exception", Error: "InternalError: out of memory"}},
		{input: "never", want: runtime.Result{Outcome: runtime.Permanent, Code: codeScript, Error: "a promise will never be settled: nothing that it waits for goes on"}},
		{input: "throw", want: runtime.Result{Outcome: runtime.Retryable, Code: "exception", Error: "a text"}},
		{input: "big", want: runtime.Result{Outcome: runtime.Permanent, Code: guest.CodeOutputLimit, Error: "the output exceeds its limit of 1048576 bytes: write less or raise the limit"}},
		{input: "Bob", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello Bob1")}}, // after all that
	} {
		var change []func(*runtime.Task)
		if tt.change != nil {
			change = append(change, tt.change)
		}
		var r runtime.Result
		if work := spent(func() { r, _ = run(tt.input, change...) }); work > 5*time.Second {
			t.Errorf("%s ran for %v", tt.input, work)
		}
		r.Duration, r.Trace = 0, ""
		if diff := cmp.Diff(tt.want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.input, diff)
		}
	}
	first, _ := run("random")
	second, _ := run("random")
	if string(first.Output) == string(second.Output) {
		t.Errorf("Math.random gave %s in two tasks", first.Output)
	}
	if r, _ := run("", func(t *runtime.Task) { t.Handler = "other" }); r.Outcome != runtime.Permanent || r.Code != guest.CodeNoHandler {
		t.Errorf("a handler that the manifest does not name: %+v", r)
	}
}

// TestJavaScriptAtOnce runs many tasks at the same time. Each must get its own instance and
// output.
func TestJavaScriptAtOnce(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.JavaScript)
	run := runner(t, e, scripts.JavaScript, "main.js", `let n = 0; export default (ctx) => ctx.text() + ++n;`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d-%d/", i, j)
				if r, _ := run(want); string(r.Output) != want+"1" {
					t.Errorf("task %s = %+v %s", want, r, r.Output)
				}
			}
		})
	}
	all.Wait()
}

func TestJavaScriptCancelled(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.JavaScript)
	digest := load(t, e, packed(t, scripts.JavaScript, "main.js", `export default (ctx) => { ctx.log.info("on"); for (;;); }`))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sink := &recorder{onLog: func(string) { cancel() }}
	if r := e.Run(ctx, runtime.Task{Digest: digest, Deadline: within(20 * time.Second)}, sink); r.Outcome != runtime.Stopped {
		t.Errorf("result = %+v", r)
	}
}

// TestJavaScriptThatCannotStart checks that each error is reported with its location.
func TestJavaScriptThatCannotStart(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.JavaScript)
	for _, tt := range []struct{ name, source, want, trace string }{
		{"syntax", "export default function main( {\n", "SyntaxError", "main.js:"},
		{"import", `import "./other.js"; export default () => {};`, `there is no module "other.js" in the script; it has main.js, wheelwork.js`, ""},
		{"outside", `import "../../etc/passwd"; export default () => {};`, "there is no module", ""},
		{"a name that is not exported", `import { Nothing } from "wheelwork"; export default () => {};`, "Nothing", ""},
		{"throws", `throw new TypeError("at once");`, "TypeError: at once", "main.js:1"},
		{"throws no error", `throw "up";`, "it threw up", ""},
		{"asks for a task", `import { ctx } from "wheelwork"; ctx.param("job");`, "param_get was called while the script was loaded", ""},
		{"waits for ever", `await new Promise(() => {});`, "never be settled", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := runner(t, e, scripts.JavaScript, "main.js", tt.source)("")
			if r.Outcome != runtime.Permanent || r.Code != codeScript || !strings.Contains(r.Error, tt.want) || !strings.Contains(r.Trace, tt.trace) {
				t.Errorf("result = %+v", r)
			}
		})
	}
	t.Run("loops for ever", func(t *testing.T) {
		r, _ := runner(t, e, scripts.JavaScript, "main.js", `for (;;);`)("", soon)
		if r.Outcome != runtime.TimedOut {
			t.Errorf("result = %+v", r)
		}
	})
	t.Run("exports nothing", func(t *testing.T) {
		r, _ := runner(t, e, scripts.JavaScript, "main.js", `export const x = 1;`)("")
		if r.Outcome != runtime.Permanent || r.Code != "no_handler" || !strings.Contains(r.Error, "it exports: x") {
			t.Errorf("result = %+v", r)
		}
	})
}

// TestJavaScriptBridge calls the host in ways that the SDK does not.
func TestJavaScriptBridge(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.JavaScript)
	known, _ := scripts.ByLanguage(scripts.JavaScript)
	// A script may contain its own SDK. This one exports the host function.
	code, err := scripts.Pack(scripts.Script{
		Language: scripts.JavaScript, Interpreter: known.Digest, Main: "main.js",
		Files: map[string]string{
			"wheelwork.js": `export const host = globalThis.__wheelwork_host;
export function run(handlers, name) { return handlers.main(); }`,
			"main.js": `import { host } from "wheelwork";
const bad = [
  [], [1], ["nothing"], ["log"], ["log", 1], ["log", "x"], ["log", 1, {}], ["log", 1, "x", 2], ["log", 1, null],
  ["bytes"], ["bytes", 1], ["text", 1], ["text", []], ["address", "x"], ["log", ...Array(14).fill("x")], Array(100).fill("log"),
];
export function main() {
  let said = "";
  for (const args of bad) {
    try { host(...args); said += "took " + JSON.stringify(args) + "\n"; } catch (e) { said += e.message + "\n"; }
  }
  host("output_write", said);
  return host("input_len") === 9 ? 0 : 2;
}`,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	digest := load(t, e, code)
	r := e.Run(context.Background(), runtime.Task{Digest: digest, Input: []byte("some text"), Deadline: within(20 * time.Second)}, &recorder{})
	if r.Outcome != runtime.Succeeded || strings.Contains(string(r.Output), "took") || strings.Count(string(r.Output), "\n") != 16 {
		t.Errorf("result = %+v\n%s", r, r.Output)
	}
	// Invalid numbers, and a pointer outside the memory, which ends the guest.
	code, _ = scripts.Pack(scripts.Script{
		Language: scripts.JavaScript, Interpreter: known.Digest, Main: "main.js",
		Files: map[string]string{
			"wheelwork.js": `export const host = globalThis.__wheelwork_host; export function run(handlers) { return handlers.main(); }`,
			"main.js": `import { host } from "wheelwork";
export function main() { host("progress", NaN, Infinity, "x"); host("fail", 1e300, -1e300, "c", "m"); host("output_write", 4294967295, 4294967295); return 0; }`,
		},
	})
	r = e.Run(context.Background(), runtime.Task{Digest: load(t, e, code), Deadline: within(20 * time.Second)}, &recorder{})
	if r.Outcome != runtime.Retryable || r.Code != guest.CodeMisuse || !strings.Contains(r.Error, "outside the memory") {
		t.Errorf("result = %+v", r)
	}
}

const python = `
import sys
from wheelwork import Permanent
from lib.greet import greet

runs = 0


def main(ctx):
    global runs
    runs += 1
    text = ctx.text()
    if text == "loop":
        while True:
            pass
    if text == "recursion":
        def f():
            return f() + 1
        f()
    if text == "memory":
        all = []
        while True:
            all.append(bytearray(1 << 20))
    if text == "exit":
        sys.exit(65)
    if text == "print":
        print("one", ctx.param("job"))
        sys.stderr.write("two\n")
        return
    if text == "write":
        try:
            open("/app/x", "w")
        except OSError as e:
            return "refused"
    if text == "outside":
        try:
            return open("/etc/passwd").read()
        except OSError as e:
            return "refused"
    if text == "socket":
        try:
            import socket
            socket.create_connection(("127.0.0.1", 80))
        except (ImportError, OSError, AttributeError):
            return "refused"
    if text == "stdout":
        import os
        os.write(1, b"\xff\xff\xff\xff")
    if text == "bad request":
        import os
        os.write(1, b"\x03\x00\x00\x00\x01xz")
    if text == "no answer":
        import os
        return repr(os.read(0, 10))
    return greet(text) + str(runs)
`

func TestPython(t *testing.T) {
	e := newEngine(t, Config{})
	interpreted(t, e, scripts.Python)
	run := runner(t, e, scripts.Python, "main.py", python, "lib/__init__.py", "", "lib/greet.py", "def greet(name): return f'hello {name}'\n")
	for _, tt := range []struct {
		input  string
		change func(*runtime.Task)
		want   runtime.Result
	}{
		{input: "Ada", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello Ada1")}},
		{input: "Ada", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello Ada1")}},
		{input: "loop", change: soon, want: runtime.Result{Outcome: runtime.TimedOut, Code: guest.CodeDeadline, Error: overdue}},
		{input: "recursion", want: runtime.Result{Outcome: runtime.Retryable, Code: "exception", Error: "RecursionError: maximum recursion depth exceeded"}},
		{input: "memory", change: func(t *runtime.Task) { t.Limits.MemoryBytes = 32 << 20 }, want: runtime.Result{Outcome: runtime.Retryable, Code: "exception", Error: "MemoryError:"}},
		{input: "exit", want: runtime.Result{Outcome: runtime.Permanent, Code: guest.CodeExit, Error: "exit code 65", ExitCode: 65}},
		{input: "print", want: runtime.Result{Outcome: runtime.Succeeded}},
		{input: "write", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("refused")}},
		{input: "outside", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("refused")}},
		{input: "socket", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("refused")}},
		{input: "no answer", want: runtime.Result{Outcome: runtime.Succeeded, Output: []byte("b''")}},
		{input: "stdout", want: runtime.Result{Outcome: runtime.Retryable, Code: guest.CodeMisuse, Error: "trap: the SDK uses standard output, and a request of 4294967295 bytes came there: print writes to the log"}},
		{input: "bad request", want: runtime.Result{Outcome: runtime.Retryable, Code: guest.CodeMisuse, Error: "trap: a request on standard output is not what the SDK writes"}},
	} {
		var change []func(*runtime.Task)
		if tt.change != nil {
			change = append(change, tt.change)
		}
		r, sink := run(tt.input, change...)
		r.Duration, r.Trace = 0, ""
		if diff := cmp.Diff(tt.want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", tt.input, diff, sink.lines)
		}
		if tt.input == "print" && !slices.Equal(sink.lines, []string{"one", "two"}) && !slices.Equal(sink.lines, []string{"one ", "two"}) {
			t.Errorf("printed %q", sink.lines)
		}
	}
	for name, source := range map[string]string{"SyntaxError": "def main(:\n", "ModuleNotFoundError": "import nothing\n"} {
		r, sink := runner(t, e, scripts.Python, "main.py", source)("")
		if r.Outcome != runtime.Permanent || r.Code != codeScript || !strings.Contains(r.Error, name) || !strings.Contains(strings.Join(sink.lines, "\n"), "main.py") {
			t.Errorf("%s: %+v %q", name, r, sink.lines)
		}
	}
}

// TestScriptNeedsItsInterpreter checks the error when the interpreter is not loaded.
func TestScriptNeedsItsInterpreter(t *testing.T) {
	e := newEngine(t, Config{})
	code := packed(t, scripts.JavaScript, "main.js", "export default () => 1;")
	info, err := Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	known, _ := scripts.ByLanguage(scripts.JavaScript)
	if info.Kind != Script || info.Interpreter != known.Digest || !slices.Equal(info.Handlers, []string{"main"}) || !slices.Equal(info.Needs, []string{scripts.Ability(known.Digest)}) {
		t.Errorf("info = %+v", info)
	}
	var needs *runtime.NeedsError
	if err := e.Load(context.Background(), info.Digest, code); !errors.As(err, &needs) || needs.Digest != known.Digest {
		t.Errorf("Load = %v", err)
	}
	if e.Loaded(info.Digest) {
		t.Error("the script is loaded without its interpreter")
	}
}

func TestScriptWithManifest(t *testing.T) {
	code := packed(t, scripts.JavaScript, "main.js", "export function a() {}\nexport function b() {}\n")
	code, err := WithManifest(code, `{"handlers":[{"name":"a"},{"name":"b"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(code)
	if err != nil || !slices.Equal(info.Handlers, []string{"a", "b"}) {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	code = packed(t, scripts.JavaScript, "main.js", "")
	if code, err = WithManifest(code, `{"handlers":[{"name":"a","batch":true}]}`); err == nil {
		_, err = Inspect(code)
	}
	if !errors.Is(err, ErrInvalidModule) {
		t.Errorf("a script that says it takes batches: %v", err)
	}
}

// TestScriptIsRefused checks that Inspect checks scripts.
func TestScriptIsRefused(t *testing.T) {
	for name, code := range map[string][]byte{
		"damaged":               withSection([]byte("\x00asm\x01\x00\x00\x00"), scripts.Section, "{"),
		"code of its own":       withSection(fixture(t, "host"), scripts.Section, "{}"),
		"the driver's imports":  withImport(t),
		"no interpreter at all": []byte("#!/usr/bin/env node\n"),
	} {
		if _, err := Inspect(code); !errors.Is(err, ErrInvalidModule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withImport returns a reactor with imports that only interpreters may have.
func withImport(t *testing.T) []byte {
	t.Helper()
	code := []byte("\x00asm\x01\x00\x00\x00")
	code = append(code, "\x01\x0a\x02\x60\x00\x01\x7f\x60\x01\x7f\x01\x7f"...) // types: () -> i32, (i32) -> i32
	code = append(code, "\x02\x16\x01\x03env\x0ehost_interrupt\x00\x00"...)
	code = append(code, "\x03\x02\x01\x01\x05\x03\x01\x00\x01"...) // one function, one page
	code = append(code, "\x07\x1d\x02\x06memory\x02\x00\x10wheelwork_handle\x00\x01"...)
	code = append(code, "\x0a\x06\x01\x04\x00\x10\x00\x0b"...)
	if _, err := Inspect(code); err == nil || !strings.Contains(err.Error(), "env.host_interrupt, which is not served") {
		t.Errorf("Inspect = %v", err)
	}
	return code
}

// TestInterpreterAsCommand runs the interpreters themselves: CPython is a command, QuickJS is not.
func TestInterpreterAsCommand(t *testing.T) {
	for _, tt := range []struct {
		language, code string
		handlers       []string
	}{{scripts.JavaScript, guest.CodeNoHandler, nil}, {scripts.Python, "", []string{"main"}}} {
		t.Run(tt.language, func(t *testing.T) {
			e := newEngine(t, Config{})
			interpreted(t, e, tt.language)
			known, _ := scripts.ByLanguage(tt.language)
			info, _ := e.Info(known.Digest)
			if info.Kind != Interpreter || !slices.Equal(info.Handlers, tt.handlers) || known.Command != (tt.handlers != nil) {
				t.Errorf("%s with the handlers %v, a command: %v", info.Kind, info.Handlers, known.Command)
			}
			r := e.Run(context.Background(), runtime.Task{
				Module: "python", Digest: known.Digest, Args: []string{"-c", "import sys; print(sys.stdin.read().upper(), sys.argv[1])", "x"}, Input: []byte("ada"), Deadline: within(time.Minute),
			}, &recorder{})
			if r.Code != tt.code || tt.code == "" && string(r.Output) != "ADA x\n" {
				t.Errorf("result = %+v", r)
			}
		})
	}
}
