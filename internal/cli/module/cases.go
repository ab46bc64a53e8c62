package module

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// casesFile is the file of a project's test cases.
const casesFile = "cases.yaml"

// caseTimeout is the timeout of a case without one of its own.
const caseTimeout = 10 * time.Second

// testCase is one task and its expected result.
type testCase struct {
	Name      string            `yaml:"name"`
	Handler   string            `yaml:"handler"`    // default main
	Input     string            `yaml:"input"`      // text
	InputFile string            `yaml:"input_file"` // alternative to input: a file beside the cases
	Args      []string          `yaml:"args"`       // arguments of a command
	Env       map[string]string `yaml:"env"`
	Attempt   int               `yaml:"attempt"` // default 1
	Timeout   string            `yaml:"timeout"` // default 10s

	Secrets map[string]string            `yaml:"secrets"` // secrets of the app
	KV      map[string]map[string]string `yaml:"kv"`      // initial values of its buckets

	Outcome        string   `yaml:"outcome"`         // default succeeded
	Output         *string  `yaml:"output"`          // exact; absent: any
	OutputJSON     any      `yaml:"output_json"`     // equal as JSON, ignoring white space
	OutputContains []string `yaml:"output_contains"` // all of them
	Code           *string  `yaml:"code"`            // code of a failure
	ErrorContains  string   `yaml:"error_contains"`
	LogContains    []string `yaml:"log_contains"` // all of them, each in some line

	KVAfter map[string]map[string]string `yaml:"kv_after"` // values of these buckets afterwards; other buckets are ignored

	timeout time.Duration
}

func (c *commands) test() *cobra.Command {
	var cases, file string
	var build bool
	var flags engineFlags
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the cases of a handler here, without a server",
		Long: `Run the cases in the cases.yaml of a project, by default the one in this folder: each
is a task with an input, and with the output, outcome and log that are expected. The
command needs only this machine: services are in memory, each case has its own, and
the module may use all that its manifest requests, except the network. The exit code
is 1 when a case fails.`,
		Example: `  wheelwork module test --build
  wheelwork module test --module totals.wasm --cases totals-cases.yaml`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&build, "build", false, "build the module first")
	cmd.Flags().StringVar(&file, "module", "", "module or script `file` to run (default the project's)")
	flags.add(cmd)
	cmd.Flags().StringVar(&cases, "cases", "", "YAML `file` with the cases (default the project's cases.yaml)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if build && file != "" {
			return command.Usage(cmd, "--build and --module exclude each other: --module names a module that is built")
		}
		dir := folder(args)
		if cases == "" {
			cases = filepath.Join(dir, casesFile)
		}
		list, err := readCases(cases)
		if err != nil {
			return err
		}
		if file == "" {
			if file, err = projectModule(cmd.Context(), dir, build); err != nil {
				return err
			}
		}
		code, err := readModule(file)
		if err != nil {
			return err
		}
		return c.runCases(cmd, code, list, filepath.Dir(cases), flags)
	}
	return cmd
}

// projectModule returns the path of a project's module.
func projectModule(ctx context.Context, dir string, build bool) (string, error) {
	p, err := readProject(dir)
	if err != nil {
		return "", err
	}
	if build {
		if _, err := p.build(ctx, false); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(p.output()); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s does not exist: build it with \"wheelwork module build\", or test with --build", p.output())
	}
	return p.output(), nil
}

// outcomes returns the names of the outcomes of a task.
func outcomes() []string {
	var words []string
	for o := runtime.Succeeded; o <= runtime.HostError; o++ {
		words = append(words, outcomeText(o))
	}
	return words
}

func readCases(file string) ([]testCase, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the cases: %w", err)
	}
	var document struct {
		Cases []testCase `yaml:"cases"`
	}
	if err := strictYAML(text, &document); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(document.Cases) == 0 {
		return nil, fmt.Errorf("read %s: it has no cases: a test of nothing would always pass", file)
	}
	for i := range document.Cases {
		if err := document.Cases[i].check(i); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	return document.Cases, nil
}

// check fills in the defaults of a case and refuses contradictions.
func (t *testCase) check(i int) (err error) {
	if t.Name == "" {
		t.Name = fmt.Sprintf("case %d", i+1)
	}
	if t.Outcome == "" {
		t.Outcome = outcomeText(runtime.Succeeded)
	}
	t.timeout = caseTimeout
	if t.Timeout != "" {
		if t.timeout, err = time.ParseDuration(t.Timeout); err != nil || t.timeout <= 0 {
			return fmt.Errorf("%s: timeout %q: want a duration such as 500ms", t.Name, t.Timeout)
		}
	}
	known := false
	for _, word := range outcomes() {
		known = known || word == t.Outcome
	}
	switch {
	case !known:
		return fmt.Errorf("%s: there is no outcome %q: want one of %s", t.Name, t.Outcome, strings.Join(outcomes(), ", "))
	case t.Input != "" && t.InputFile != "":
		return fmt.Errorf("%s: it has an input and an input_file: give one", t.Name)
	case t.Output != nil && t.OutputJSON != nil:
		return fmt.Errorf("%s: it has an output and an output_json: give one", t.Name)
	case t.Attempt < 0:
		return fmt.Errorf("%s: attempt %d: want 1 or more", t.Name, t.Attempt)
	}
	return nil
}

// caseResult is the JSON about an executed case.
type caseResult struct {
	Name    string   `json:"name"`
	Passed  bool     `json:"passed"`
	Outcome string   `json:"outcome"`
	Wrong   []string `json:"wrong"`
	Seconds float64  `json:"seconds"`
}

// runCases runs the cases one after another. It fails when a case fails.
func (c *commands) runCases(cmd *cobra.Command, code []byte, list []testCase, dir string, flags engineFlags) error {
	ctx := cmd.Context()
	services := &local.Services{}
	engine, err := c.newEngine(cmd, flags.cacheFlags, wasm.Config{Services: services, NoVariables: flags.noEnv})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the process ends with it
	info, err := load(ctx, engine, code)
	if err == nil {
		err = engine.CheckScript(ctx, info.Digest)
	}
	if err != nil {
		return err
	}
	failed := 0
	err = c.PrintAll([]string{"case", "result", "outcome", "took", "wrong"}, func(yield func(output.Record, error) bool) {
		for i, t := range list {
			task := runtime.Task{
				RunID: "test", App: fmt.Sprintf("case-%d", i+1), Job: "test", PlannedAt: time.Now(),
				Module: "test", Digest: info.Digest, Grants: &info.Manifest.Capabilities,
			}
			r, err := t.run(ctx, engine, services, task, dir)
			if err != nil {
				yield(output.Record{}, err)
				return
			}
			if !r.Passed {
				failed++
			}
			if !yield(output.Object(r, r.row), nil) {
				return
			}
		}
	})
	if err == nil && failed > 0 {
		return command.Fail("cases_failed", "%d of %s failed", failed, command.Count(len(list), "case"))
	}
	return err
}

func (r caseResult) row() []output.Cell {
	result := output.Cell{Text: "passed", Tint: output.Green}
	if !r.Passed {
		result = output.Cell{Text: "failed", Tint: output.Red}
	}
	return []output.Cell{
		{Text: r.Name},
		result,
		{Text: r.Outcome},
		{Text: time.Duration(r.Seconds * float64(time.Second)).Round(time.Microsecond).String()},
		{Text: strings.Join(r.Wrong, "; ")},
	}
}

// run runs one case as a task in its own app.
func (t testCase) run(ctx context.Context, engine *wasm.Engine, services *local.Services, task runtime.Task, dir string) (caseResult, error) {
	task.Attempt = max(t.Attempt, 1)
	task.MaxAttempt = task.Attempt
	task.Handler, task.Input, task.Args, task.Env = t.Handler, []byte(t.Input), t.Args, t.Env
	task.Deadline = time.Now().Add(t.timeout)
	if t.InputFile != "" {
		var err error
		if task.Input, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(t.InputFile))); err != nil {
			return caseResult{}, fmt.Errorf("%s: read the input: %w", t.Name, err)
		}
	}
	for name, value := range t.Secrets {
		services.SetSecret(task.App, name, []byte(value))
	}
	for bucket, entries := range t.KV {
		for key, value := range entries {
			if _, err := services.Put(ctx, &task, bucket, key, []byte(value), runtime.AnyVersion); err != nil {
				return caseResult{}, fmt.Errorf("%s: kv %s/%s: %w", t.Name, bucket, key, err)
			}
		}
	}
	sink := &caseSink{}
	result := engine.Run(ctx, task, sink)
	if err := ctx.Err(); err != nil {
		return caseResult{}, err
	}
	wrong := append(t.wrong(result, sink.log.String()), t.wrongEntries(services, task.App)...)
	return caseResult{t.Name, len(wrong) == 0, outcomeText(result.Outcome), wrong, result.Duration.Seconds()}, nil
}

// wrongEntries compares the buckets that a case names.
func (t testCase) wrongEntries(services *local.Services, app string) (wrong []string) {
	for _, bucket := range sortedKeys(t.KVAfter) {
		have := services.Entries(app, bucket)
		for _, key := range sortedKeys(t.KVAfter[bucket]) {
			want := t.KVAfter[bucket][key]
			if got, ok := have[key]; !ok || string(got.Value) != want {
				wrong = append(wrong, quoted("kv "+bucket+"/"+key, got.Value, want))
			}
			delete(have, key)
		}
		for _, key := range sortedKeys(have) {
			wrong = append(wrong, fmt.Sprintf("kv %s/%s %.200q, want no such key", bucket, key, have[key].Value))
		}
	}
	return wrong
}

// caseSink stores the log.
type caseSink struct{ log strings.Builder }

func (s *caseSink) Log(_ runtime.Level, line []byte) { s.log.Write(append(bytes.Clone(line), '\n')) }
func (s *caseSink) Progress(int64, int64, string)    {}
func quoted(what string, got, want any) string {
	return fmt.Sprintf("%s %.200q, want %.200q", what, got, want)
}

func lacks(what, text, part string) string {
	return fmt.Sprintf("%s %.200q lacks %.200q", what, text, part)
}

func explained(word string, r runtime.Result) string {
	if r.Error == "" {
		return word
	}
	return word + ": " + r.Error
}

// wrong lists the differences between a result and the expectation. It is never nil, so
// that its JSON is a list.
func (t testCase) wrong(r runtime.Result, log string) []string {
	wrong := []string{}
	add := func(text string) { wrong = append(wrong, text) }
	output := string(r.Output)
	if got := outcomeText(r.Outcome); got != t.Outcome {
		add(quoted("outcome", explained(got, r), t.Outcome))
	}
	if t.Output != nil && output != *t.Output {
		add(quoted("output", output, *t.Output))
	}
	if t.OutputJSON != nil && !sameJSON(r.Output, t.OutputJSON) {
		want, _ := json.Marshal(t.OutputJSON) // YAML without a JSON form equals no output
		add(quoted("output", output, want))
	}
	for _, part := range t.OutputContains {
		if !strings.Contains(output, part) {
			add(lacks("output", output, part))
		}
	}
	if t.Code != nil && r.Code != *t.Code {
		add(quoted("code", r.Code, *t.Code))
	}
	if !strings.Contains(r.Error, t.ErrorContains) {
		add(lacks("error", r.Error, t.ErrorContains))
	}
	for _, part := range t.LogContains {
		if !strings.Contains(log, part) {
			add(lacks("log", log, part))
		}
	}
	return wrong
}

// sameJSON reports whether text is JSON with the same value as a value from YAML.
func sameJSON(text []byte, value any) bool {
	encoded, err := json.Marshal(value)
	if err != nil {
		return false
	}
	var have, want any
	return json.Unmarshal(text, &have) == nil && json.Unmarshal(encoded, &want) == nil && reflect.DeepEqual(have, want)
}
