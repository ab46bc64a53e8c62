package wasm_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// printer is a sink that prints what a handler logs.
type printer struct{}

func (printer) Log(_ runtime.Level, line []byte) { fmt.Printf("log: %s\n", line) }

func (printer) Progress(done, total int64, message string) {
	fmt.Println("progress:", done, "of", total, message)
}

// module reads a module of testdata.
func module(name string) []byte {
	code, err := os.ReadFile("testdata/" + name + ".wasm")
	if err != nil {
		log.Fatal(err)
	}
	return code
}

// run loads a module into a new engine and runs one task.
func run(code []byte, task runtime.Task) runtime.Result {
	ctx := context.Background()
	engine, err := wasm.New(ctx, wasm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx) //nolint:errcheck // no task runs
	task.Digest = modules.Digest(code)
	if err := engine.Load(ctx, task.Digest, code); err != nil {
		log.Fatal(err)
	}
	return engine.Run(ctx, task, printer{})
}

// Inspect describes a module, or refuses it with one sentence.
func ExampleInspect() {
	info, err := wasm.Inspect(module("args"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Kind, info.Needs)

	_, err = wasm.Inspect([]byte("#!/bin/sh"))
	fmt.Println(err)
	// Output:
	// command [wasi-p1]
	// module refused: this is not WebAssembly (it starts with "#!/bin/s"): upload the .wasm file that your compiler wrote, or a script (.js, .py) with "wheelwork module push"
}

// An engine runs a handler of a loaded module. The log lines of the handler go to the sink
// while it runs.
func ExampleEngine_Run() {
	// The manifest names the handlers of the module, in the order of its table.
	code, err := wasm.WithManifest(module("host"), `{"handlers": [
		{"name": "echo"}, {"name": "param"}, {"name": "failing"}, {"name": "status"}, {"name": "pointer"}, {"name": "memory"},
		{"name": "grow"}, {"name": "trap"}, {"name": "quit"}, {"name": "wait"}, {"name": "clock"}, {"name": "logs"}
	]}`)
	if err != nil {
		log.Fatal(err)
	}
	echoed := run(code, runtime.Task{RunID: "run-1", Handler: "echo", Input: []byte("hello")})
	fmt.Println(echoed.Outcome == runtime.Succeeded, string(echoed.Output))
	logged := run(code, runtime.Task{RunID: "run-2", Handler: "logs", Input: []byte("one\ntwo")})
	fmt.Println(logged.Outcome == runtime.Succeeded)
	// Output:
	// true hello
	// log: one
	// log: two
	// log: it went wrong
	// true
}

// Fuel bounds the work of a task: the engine ends a handler that never returns.
func ExampleEngine_Run_fuel() {
	code := module("loop")
	result := run(code, runtime.Task{RunID: "run-1", Limits: runtime.Limits{Fuel: 100_000}})
	fmt.Println(result.Code, "-", result.Error)
	// Output: fuel - the handler used up its fuel of 100000 units: do less in one task, or raise the limit
}
