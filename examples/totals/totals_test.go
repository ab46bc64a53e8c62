package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

const orders = `customer,item,quantity,price
ada,lens,2,12.50
bob,prism,1,80.00
ada,tube,3,4.99
`

var totals = summary{Orders: 3, Cents: 11997, Customers: []customer{
	{Name: "bob", Orders: 1, Cents: 8000},
	{Name: "ada", Orders: 2, Cents: 3997},
}}

func TestTotal(t *testing.T) {
	have, err := total(strings.NewReader(orders))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(totals, have); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "a,b\n", orders + "ada,lens,two,1\n", orders + "ada,lens,2,cheap\n"} {
		if _, err := total(strings.NewReader(bad)); !errors.Is(err, errInput) {
			t.Errorf("total(%q): error %v", bad, err)
		}
	}
}

// logLines is a sink that records the log.
type logLines []string

func (l *logLines) Log(_ runtime.Level, line []byte) { *l = append(*l, string(line)) }
func (l *logLines) Progress(int64, int64, string)    {}

// TestAsHandler builds the program for WASI and runs it as a host does.
func TestAsHandler(t *testing.T) {
	file := filepath.Join(t.TempDir(), "totals.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
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
	defer engine.Close(ctx)
	if err := engine.Load(ctx, info.Digest, code); err != nil {
		t.Fatal(err)
	}
	run := func(input string) (runtime.Result, logLines) {
		var log logLines
		r := engine.Run(ctx, runtime.Task{Module: "totals", Digest: info.Digest, Input: []byte(input)}, &log)
		return r, log
	}

	r, log := run(orders)
	var have summary
	if err := json.Unmarshal(r.Output, &have); err != nil || r.Outcome != runtime.Succeeded {
		t.Fatalf("result %+v: %v", r, err)
	}
	if diff := cmp.Diff(totals, have); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(logLines{"3 orders of 2 customers"}, log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	r, _ = run("customer,item,quantity,price\nada,lens,two,1\n")
	if r.Outcome != runtime.Permanent || r.ExitCode != exitData || !strings.Contains(r.Error, "line 2") {
		t.Errorf("bad input: %+v", r)
	}
}
