package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// server answers the requests of the handler.
type server struct {
	rates map[string]string // by currency; "" means status 503
	asked []string
}

func (s *server) send(_ context.Context, _ *runtime.Task, r runtime.Request) (*runtime.Response, error) {
	s.asked = append(s.asked, r.Method+" "+r.URL+" "+strings.Join(r.Header["Authorization"], ","))
	rate, ok := s.rates[strings.TrimPrefix(r.URL, "https://rates.example.com/v1/")]
	status := 200
	switch {
	case !ok:
		status = 404
	case rate == "":
		status = 503
	}
	return &runtime.Response{Status: status, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(rate + "\n"))}, nil
}

type lines []string

func (l *lines) Log(_ runtime.Level, line []byte) { *l = append(*l, string(line)) }
func (l *lines) Progress(int64, int64, string)    {}

// build compiles the example, packs it with its manifest and returns an engine that has
// loaded it.
func build(t *testing.T, services runtime.Services) (*wasm.Engine, wasm.Info) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rates.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if code, err = wasm.Pack(ctx, code, ""); err != nil {
		t.Fatal(err)
	}
	info, err := wasm.Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := wasm.New(ctx, wasm.Config{Services: services})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(ctx) })
	if err := engine.Load(ctx, info.Digest, code); err != nil {
		t.Fatal(err)
	}
	return engine, info
}

func TestRates(t *testing.T) {
	if testing.Short() {
		t.Skip("a module of Go takes a minute to compile under the race detector")
	}
	s := &server{rates: map[string]string{"EUR": "1.10", "USD": "", "CHF": "0.95"}}
	services := &local.Services{Sender: s.send}
	engine, info := build(t, services)
	if want := []string{"wasi-p1", "wheelwork_v1.1"}; !cmp.Equal(info.Needs, want) || !cmp.Equal(info.Handlers, []string{"main"}) {
		t.Errorf("it needs %q and has %q, want %q and main", info.Needs, info.Handlers, want)
	}
	run := func(id, input string, grants *runtime.Grants) (runtime.Result, lines) {
		var log lines
		r := engine.Run(context.Background(), runtime.Task{App: "shop", RunID: id, Digest: info.Digest, Input: []byte(input), Grants: grants}, &log)
		return r, log
	}
	asked := &info.Manifest.Capabilities

	// One request fails with 503: the run fails and keeps its progress.
	r, _ := run("r1", "EUR USD CHF", asked)
	if r.Outcome != runtime.Retryable || r.Code != "rates_down" || !strings.Contains(r.Error, "USD") {
		t.Fatalf("first attempt: %+v", r)
	}
	// The next attempt continues from there.
	s.rates["USD"] = "1"
	s.asked = nil
	if r, _ = run("r1", "EUR USD CHF", asked); r.Outcome != runtime.Succeeded || string(r.Output) != "3 rates\n" {
		t.Fatalf("second attempt: %+v", r)
	}
	want := []string{"GET https://rates.example.com/v1/USD Bearer {{secret:RATES_KEY}}", "GET https://rates.example.com/v1/CHF Bearer {{secret:RATES_KEY}}"}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	// Another run finds one rate that has moved.
	s.rates["EUR"] = "1.20"
	r, log := run("r2", "EUR USD", asked)
	if r.Outcome != runtime.Succeeded || !cmp.Equal(log, lines{"moved currency=EUR from=1.1 to=1.2"}) {
		t.Fatalf("another run: %+v %q", r, log)
	}
	if got := services.Submits(); len(got) != 1 || got[0].Job != "rate-moved" || string(got[0].Input) != "EUR" {
		t.Errorf("enqueued %+v", got)
	}
	if got := services.Entries("shop", "rates")["EUR"]; string(got.Value) != "1.2" {
		t.Errorf("the bucket has %q", got.Value)
	}
	if n := services.Value("rates_moved"); n != 1 {
		t.Errorf("counted %v", n)
	}
	// Errors that a retry cannot fix.
	if r, _ := run("r3", "ZZZ", asked); r.Outcome != runtime.Permanent || r.Code != "unknown_currency" {
		t.Errorf("no such currency: %+v", r)
	}
	// Without grants the handler fails, and a retry cannot help.
	r, log = run("r4", "EUR", nil)
	if r.Outcome != runtime.Permanent || r.Code != "not_granted" || len(log) != 1 || !strings.Contains(log[0], "was not granted this") {
		t.Errorf("without grants: %+v %q", r, log)
	}
}
