package module

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// most is the largest --max-output: the output is held in memory.
const most = 1 << 30

func (c *commands) run() *cobra.Command {
	var handler, input string
	var args, env []string
	var memory int64
	var maxOutput string
	var services localServices
	var flags engineFlags
	cmd := &cobra.Command{
		Use:   "run FILE.wasm",
		Short: "Run a handler here, without a server",
		Long: `Run a handler here as a host would, without a server. The output goes to
standard output, the log to standard error; the exit code is 1 unless the
handler succeeded.

Services such as keys and values are in memory, and the handler may use them only
with --grant. The command prints at the end what the handler changed. It really
sends the requests over HTTP that are granted.

The compiled module is kept on disk, so that the next run of it starts at once.`,
		Example: `  wheelwork module run totals.wasm --input @orders.csv --timeout 10s
  wheelwork module run rates.wasm --input EUR --grant asked --kv rates/EUR=1.1 --secret RATES_KEY=k
  wheelwork module run rates.wasm --grant '{"kv":["rates"]}'`,
		Args: command.Arguments("FILE.wasm"),
	}
	services.flags(cmd)
	flags.add(cmd)
	cmd.Flags().StringVar(&maxOutput, "max-output", "1MiB", "largest output of the handler, as `SIZE`")
	cmd.Flags().StringVar(&handler, "handler", "main", "the entry of the module")
	cmd.Flags().StringVar(&input, "input", "", "input: a text, @FILE, or @- for standard input")
	cmd.Flags().StringArrayVar(&args, "arg", nil, "argument of a WASI command; may be repeated")
	cmd.Flags().StringArrayVar(&env, "env", nil, "`NAME=VALUE` in the environment of a WASI command; may be repeated")
	cmd.Flags().Int64Var(&memory, "memory", 0, "most linear memory of the handler, in MiB; a smaller limit of the manifest holds (default the manifest's, or 256)")
	cmd.RunE = func(cmd *cobra.Command, positional []string) error {
		task := runtime.Task{
			RunID: "local", App: c.App, Job: "local", Attempt: 1, MaxAttempt: 1, PlannedAt: time.Now(),
			Module:  strings.TrimSuffix(filepath.Base(positional[0]), ".wasm"),
			Handler: handler, Args: args, Limits: runtime.Limits{MemoryBytes: memory << 20},
		}
		if cmd.Flags().Changed("memory") && (memory < 1 || memory > 4096) {
			return command.Usage(cmd, "--memory %d: want 1 to 4096 MiB", memory)
		}
		var err error
		if task.Limits.OutputBytes, err = command.Size(maxOutput); err != nil || task.Limits.OutputBytes > most {
			return command.Usage(cmd, "--max-output %q: want a size of at most 1GiB, such as 16MiB", maxOutput)
		}
		if task.Env, err = readEnv(cmd, env); err != nil {
			return err
		}
		if task.Input, err = command.Input(cmd, input); err != nil {
			return err
		}
		code, err := readModule(positional[0])
		if err != nil {
			return err
		}
		if err := services.fill(cmd, c.App); err != nil {
			return err
		}
		defer services.close()
		result, err := c.runLocally(cmd, code, task, &services, flags)
		if err != nil {
			return err
		}
		return c.printResult(task.Module, result, services.effects(task))
	}
	return cmd
}

func readEnv(cmd *cobra.Command, pairs []string) (map[string]string, error) {
	env := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, command.Usage(cmd, "--env %q: want NAME=VALUE", pair)
		}
		env[name] = value
	}
	return env, nil
}

// runLocally runs one task on its own engine. As on a host, the timeout starts after the
// module is compiled.
func (c *commands) runLocally(cmd *cobra.Command, code []byte, task runtime.Task, services *localServices, flags engineFlags) (runtime.Result, error) {
	ctx := cmd.Context()
	engine, err := c.newEngine(cmd, flags.cacheFlags, wasm.Config{
		MaxMemoryBytes: max(task.Limits.MemoryBytes, 1<<30), Services: &services.Services, Dirs: services.dirs, NoVariables: flags.noEnv,
	})
	if err != nil {
		return runtime.Result{}, err
	}
	defer engine.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the process ends with it
	info, err := load(ctx, engine, code)
	if err != nil {
		return runtime.Result{}, err
	}
	if task.Grants, err = services.grants(info.Manifest.Capabilities); err != nil {
		return runtime.Result{}, err
	}
	if task.Grants == nil && string(manifest.Encode(info.Manifest.Capabilities)) != "{}" {
		c.Note("the module requests more than --grant allows: --grant asked allows all of it")
	}
	task.Digest = info.Digest
	if c.Timeout > 0 {
		task.Deadline = time.Now().Add(c.Timeout)
	}
	return engine.Run(ctx, task, localSink{c.Printer}), nil
}

// localResult is the JSON of a run without a server.
type localResult struct {
	Outcome  string  `json:"outcome"`
	Output   string  `json:"output"`
	Error    string  `json:"error"`
	Code     string  `json:"code"`
	Trace    string  `json:"trace"`
	ExitCode int     `json:"exit_code"`
	Seconds  float64 `json:"seconds"`
	Effects  effects `json:"effects"`
}

func (c *commands) printResult(module string, r runtime.Result, did effects) error {
	c.ClearStatus()
	outcome := outcomeText(r.Outcome)
	if c.Format == output.Table {
		// Writes the output byte for byte, because it may go to a pipe.
		if _, err := c.Out.Write(r.Output); err != nil {
			return err
		}
		if output.IsTerminal(c.Out) && len(r.Output) > 0 && !bytes.HasSuffix(r.Output, []byte("\n")) {
			fmt.Fprintln(c.Out)
		}
		for _, line := range did.lines() {
			c.Note("%s", line)
		}
	} else {
		err := c.PrintOne(nil, output.Object(localResult{
			Outcome: outcome, Output: string(r.Output), Error: r.Error, Code: r.Code, Trace: r.Trace,
			ExitCode: r.ExitCode, Seconds: r.Duration.Seconds(), Effects: did,
		}, nil))
		if err != nil {
			return err
		}
	}
	if r.Outcome == runtime.Succeeded {
		return nil
	}
	if r.Trace != "" && c.Format == output.Table {
		c.Note("%s", strings.TrimRight(r.Trace, "\n"))
	}
	return command.Fail("run_"+outcome, "module %s ended as %s: %s", module, outcome, r.Error)
}

func outcomeText(o runtime.Outcome) string {
	switch o {
	case runtime.Succeeded:
		return "succeeded"
	case runtime.Retryable:
		return "retryable"
	case runtime.Permanent:
		return "permanent"
	case runtime.TimedOut:
		return "timed_out"
	case runtime.Stopped:
		return "stopped"
	}
	return "host_error"
}

// localSink prints the reports of a handler to standard error.
type localSink struct{ *output.Printer }

func (s localSink) Log(level runtime.Level, line []byte) {
	text := string(line)
	if output.IsTerminal(s.Err) {
		s.ClearStatus()
		text = output.Printable(text)
	}
	switch level {
	case runtime.LevelDebug:
		text = s.Paint(s.Err, output.Faint, "debug: "+text)
	case runtime.LevelWarn:
		text = s.Paint(s.Err, output.Yellow, "warn: "+text)
	case runtime.LevelError:
		text = s.Paint(s.Err, output.Red, "error: "+text)
	}
	fmt.Fprintln(s.Err, text)
}

func (s localSink) Progress(done, total int64, message string) {
	line := fmt.Sprintf("%d", done)
	if total > 0 {
		line += fmt.Sprintf(" of %d", total)
	}
	s.Status(line + " " + message)
}
