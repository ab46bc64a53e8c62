package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Command is a program that the operator of a host allows jobs to run. Name and Path are
// required.
type Command struct {
	Name    string   // name in the field handler.command of a job
	Path    string   // absolute; there is no search path and no shell
	Args    []string // arguments of every call
	JobArgs bool     // append the arguments of the job
	Env     map[string]string
	JobEnv  []string      // names of the variables that a job may set
	Dir     string        // working directory, which it may change; default: the directory of Path, with User /
	Grace   time.Duration // between the request to end and the kill; default 2 s
	// SHA256 has the digests of the programs that are allowed, in hex. NewExec copies the
	// program and checks the copy, and each run starts that copy. Empty: each run starts
	// what is at Path then.
	SHA256 []string
	process.Rights
}

// allowed is a command that NewExec has checked.
type allowed struct {
	Command
	program string // path of the program or of its copy
	rules   *process.Rules
}

const defaultGrace = 2 * time.Second

// Exec runs commands. It passes the input on standard input, reads the output from
// standard output and the log from standard error. The exit code decides the outcome, as
// for a WASI command. See [runtime.Executor].
type Exec struct {
	commands map[string]*allowed
	keeper   *process.Keeper
}

var commandName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// NewExec returns an executor of the commands. It copies programs with a digest to dir, which
// it makes, accessible only to this user. The caller must close keeper after the last run.
func NewExec(commands []Command, keeper *process.Keeper, dir string) (*Exec, error) {
	e := &Exec{commands: map[string]*allowed{}, keeper: keeper}
	for _, c := range commands {
		switch {
		case !commandName.MatchString(c.Name):
			return nil, fmt.Errorf("command %q: the name is malformed: use letters, digits, '.', '_' and '-', and begin with a letter or a digit", c.Name)
		case e.commands[c.Name] != nil:
			return nil, fmt.Errorf("command %s is listed twice", c.Name)
		case !filepath.IsAbs(c.Path):
			return nil, fmt.Errorf("command %s: path %q is not absolute", c.Name, c.Path)
		case c.Grace < 0:
			return nil, fmt.Errorf("command %s: grace is negative", c.Name)
		}
		if info, err := os.Stat(c.Path); err != nil || info.IsDir() {
			return nil, fmt.Errorf("command %s: %s is no program: %v", c.Name, c.Path, err)
		}
		a, err := allow(c, keeper, dir)
		if err != nil {
			return nil, fmt.Errorf("command %s: %w", c.Name, err)
		}
		e.commands[c.Name] = a
	}
	return e, nil
}

// allow checks one command and prepares its program.
func allow(c Command, keeper *process.Keeper, dir string) (*allowed, error) {
	a := &allowed{Command: c, program: c.Path}
	if err := process.CheckDigests(c.SHA256); err != nil {
		return nil, err
	}
	if len(c.SHA256) > 0 {
		copied, err := process.CopyProgram(c.Path, dir, c.Name)
		if err != nil {
			return nil, err
		}
		if err := copied.Allow(c.SHA256); err != nil {
			return nil, errors.Join(err, copied.Discard())
		}
		if a.program, err = copied.Publish(); err != nil {
			return nil, err
		}
	}
	// A folder that the operator names is the work directory of the command, which it
	// changes. The folder of the program may have anything in it, such as tokens.
	if c.Dir != "" {
		c.Write = append(slices.Clone(c.Write), c.Dir)
	}
	rules, err := keeper.Rules(c.Rights)
	if err != nil {
		return nil, err
	}
	a.rules = rules.With([]string{a.program}, nil)
	a.Dir = cmp.Or(c.Dir, rules.Dir(c.Path))
	a.Grace = cmp.Or(c.Grace, defaultGrace)
	return a, nil
}

// Names returns the names of the commands, sorted.
func (e *Exec) Names() []string { return slices.Sorted(maps.Keys(e.commands)) }

// Apps returns the apps that may use what key names, "exec/NAME" for a command; nil: all.
func (e *Exec) Apps(key string) []string {
	if c := e.commands[strings.TrimPrefix(key, "exec/")]; c != nil {
		return c.Apps
	}
	return nil
}

// Codes of results.
const (
	codeNoCommand = "no_command"
	codeNotRun    = "not_started"
	codeExit      = "exit"
	codeSignal    = "signal"
)

// Run runs the command of a task and waits until it has ended.
func (e *Exec) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	c, ok := e.commands[t.Command]
	if !ok {
		return failed(runtime.HostError, codeNoCommand, "this host has no command %q: its operator allows commands with --commands", t.Command)
	}
	if !c.Serves(t.App) {
		return failed(runtime.HostError, codeNoCommand, "this host does not offer command %q to app %s: its operator names the apps in the file of --commands", t.Command, t.App)
	}
	env, err := c.environment(&t)
	if err == nil {
		err = c.checkArgs(&t)
	}
	if err != nil {
		return failed(runtime.Permanent, codeBadTask, "command %s: %v", c.Name, err)
	}
	switch {
	case ctx.Err() != nil:
		return failed(runtime.Stopped, codeStopped, "cancelled before it started")
	case !t.Deadline.IsZero() && !time.Now().Before(t.Deadline):
		return failed(runtime.TimedOut, codeDeadline, "the timeout passed before it started")
	}
	cmd := exec.Command(c.program, append(slices.Clone(c.Args), t.Args...)...)
	cmd.Dir, cmd.Env, cmd.Args[0] = c.Dir, env, c.Path
	start := time.Now()
	p, err := e.start(cmd, c.rules, t.Input, cmp.Or(t.Limits.OutputBytes, defaultOutputBytes))
	if err != nil {
		return failed(runtime.HostError, codeNotRun, "command %s: %v", c.Name, err)
	}
	budget := process.NewBudget(t.Limits.LogBytes)
	asked := p.await(ctx, &t, c.Grace, sink, &budget)
	r := p.result(c.Name, asked)
	r.Duration = time.Since(start)
	return r
}

func (c *Command) checkArgs(t *runtime.Task) error {
	if len(t.Args) > 0 && !c.JobArgs {
		return errors.New("it takes no arguments of jobs: the operator of the host allows them with job_args")
	}
	for _, a := range t.Args {
		if strings.ContainsRune(a, 0) {
			return errors.New("an argument has a zero byte, which no program can be given")
		}
	}
	return nil
}

// environment returns the environment of a command: some variables of the host, the
// identity of the run, the variables that JobEnv allows the job to set, and those of the
// operator, which take precedence.
func (c *allowed) environment(t *runtime.Task) ([]string, error) {
	vars := map[string]string{
		"WHEELWORK_RUN_ID": t.RunID, "WHEELWORK_APP": t.App, "WHEELWORK_JOB": t.Job,
		"WHEELWORK_ATTEMPT": strconv.Itoa(t.Attempt), "WHEELWORK_MAX_ATTEMPTS": strconv.Itoa(t.MaxAttempt),
		"WHEELWORK_PLANNED_AT_MS": strconv.FormatInt(t.PlannedAt.UnixMilli(), 10), "WHEELWORK_COVERS": strconv.FormatInt(t.Covers, 10),
		"WHEELWORK_PART": strconv.Itoa(t.Part), "WHEELWORK_PARTS": strconv.Itoa(t.Parts),
	}
	if t.TraceParent != "" {
		vars["TRACEPARENT"] = t.TraceParent
		if t.TraceState != "" {
			vars["TRACESTATE"] = t.TraceState
		}
	}
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ", "SystemRoot"} {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	for name, value := range t.Env {
		if !slices.Contains(c.JobEnv, name) {
			return nil, fmt.Errorf("a job may not set %q: the operator of the host allows it with job_env", name)
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("the value of %q has a zero byte, which no program can be given", name)
		}
		vars[name] = value
	}
	maps.Copy(vars, c.Env)
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env, nil
}

// running is a command that has started.
type running struct {
	child *process.Child
	in    *os.File
	out   *os.File
	errs  *os.File

	lines  chan []byte   // of its log, from standard error
	read   chan struct{} // closed when its output has been read
	output []byte        // set before read is closed
	over   bool          // the output exceeds the limit; set before read is closed
	limit  int64
	words  process.LastWords
}

// pipe returns both ends of a pipe, and adds them to open, the files to close after an
// error.
func pipe(open *[]*os.File) (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err == nil {
		*open = append(*open, r, w)
	}
	return r, w, err
}

func (e *Exec) start(cmd *exec.Cmd, rules *process.Rules, input []byte, limit int64) (_ *running, err error) {
	var open []*os.File
	defer func() {
		if err != nil {
			for _, f := range open {
				f.Close()
			}
		}
	}()
	stdin, in, err := pipe(&open)
	if err != nil {
		return nil, err
	}
	out, stdout, err := pipe(&open)
	if err != nil {
		return nil, err
	}
	errs, stderr, err := pipe(&open)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	if rules.User() {
		program, err := process.Hold(cmd)
		if err != nil {
			return nil, err
		}
		defer program.Close()
	}
	child, err := e.keeper.Start(cmd, rules)
	if err != nil {
		return nil, err
	}
	stdin.Close()
	stdout.Close()
	stderr.Close()
	p := &running{child: child, in: in, out: out, errs: errs, lines: make(chan []byte), read: make(chan struct{}), limit: limit}
	go p.write(input)
	go p.readOutput()
	go p.readLog()
	return p, nil
}

// write writes the input to the command. The input is lost if the command does not read
// it.
func (p *running) write(input []byte) {
	_, _ = p.in.Write(input)
	_ = p.in.Close()
}

func (p *running) readOutput() {
	defer close(p.read)
	output, _ := io.ReadAll(io.LimitReader(p.out, p.limit+1)) // an error ends the output as well
	if int64(len(output)) > p.limit {
		p.over = true
		p.child.Kill() // the rest of the output is not read
		return
	}
	p.output = output
}

func (p *running) readLog() {
	defer close(p.lines)
	lines := process.Lines{Emit: func(line []byte) { p.lines <- slices.Clone(line) }}
	_, _ = io.Copy(&lines, p.errs)
	lines.Flush()
}

// lateOutput is how long Exec waits for the end of the output after the command has
// ended. A program that the command started may have left the process group and still
// hold the pipe.
const lateOutput = time.Second

// await waits for the end of the command. When the deadline passes or ctx is done, it
// asks the command to end, and kills it after grace. It returns the reason for the
// request: 0 for none, Stopped or TimedOut.
func (p *running) await(ctx context.Context, t *runtime.Task, grace time.Duration, sink runtime.Sink, budget *process.Budget) (asked runtime.Outcome) {
	stop := ctx.Done()
	var overdue, patience <-chan time.Time
	if !t.Deadline.IsZero() {
		deadline := time.NewTimer(time.Until(t.Deadline))
		defer deadline.Stop()
		overdue = deadline.C
	}
	ask := func(o runtime.Outcome) {
		asked, stop, overdue = o, nil, nil
		p.child.Terminate()
		patience = time.After(grace)
	}
	ended := p.child.Done()
	lines := p.lines
	for ended != nil || lines != nil {
		select {
		case line, ok := <-lines:
			if !ok {
				lines = nil
				continue
			}
			p.words.Note(line)
			budget.Log(sink, runtime.LevelInfo, line)
		case <-ended:
			ended, stop, overdue, patience = nil, nil, nil, nil
			p.expire()
		case <-stop:
			ask(runtime.Stopped)
		case <-overdue:
			ask(runtime.TimedOut)
		case <-patience:
			p.child.Kill()
		}
	}
	<-p.read
	p.in.Close() // write may have closed it already
	p.out.Close()
	p.errs.Close()
	return asked
}

// expire sets deadlines on the pipes of a command that has ended.
func (p *running) expire() {
	late := time.Now().Add(lateOutput)
	_ = p.out.SetReadDeadline(late)
	_ = p.errs.SetReadDeadline(late)
	_ = p.in.SetWriteDeadline(time.Now())
}

// result derives the outcome from the exit code by the conventions of sysexits, as for a
// WASI command.
func (p *running) result(name string, asked runtime.Outcome) runtime.Result {
	state := p.child.State()
	code := state.ExitCode()
	why := ""
	if said := p.words.String(); said != "" {
		why = ": " + said
	}
	switch {
	case asked == 0 && p.over:
		return failed(runtime.Permanent, codeOutputLimit, "command %s: the output exceeds its limit of %d bytes: write less or raise the limit", name, p.limit)
	case code == 0 && !p.over: // also after a request to end: the work was already complete
		return runtime.Result{Outcome: runtime.Succeeded, Output: p.output}
	case asked == runtime.Stopped:
		return failed(asked, codeStopped, "cancelled")
	case asked == runtime.TimedOut:
		return failed(asked, codeDeadline, "the timeout passed")
	case code < 0:
		r := failed(runtime.Retryable, codeSignal, "command %s was ended by %s%s", name, signalOf(state), why)
		r.ExitCode = code
		return r
	}
	r := failed(runtime.Retryable, codeExit, "exit code %d%s", code, why)
	if code >= 64 && code <= 70 || code >= 76 && code <= 78 {
		r.Outcome = runtime.Permanent
	}
	r.ExitCode, r.Output = code, p.output
	return r
}

func signalOf(state *os.ProcessState) string {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return state.String()
}
