package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

const (
	maxOutput  = 4 << 10     // bytes of the output that are returned; the rest is dropped
	grace      = time.Second // between the request to end and the kill
	lateOutput = time.Second // for the output after the end of the program
)

// Program is a program that channels may name.
type Program struct {
	Name string
	Path string // absolute; there is no search path and no shell
	process.Rights
}

// Parse reads a declaration of the form NAME=PATH.
func Parse(s string) (Program, error) {
	name, path, ok := strings.Cut(s, "=")
	if !ok {
		return Program{}, fmt.Errorf("%q is not of the form NAME=PATH", s)
	}
	p := Program{Name: name, Path: path}
	return p, p.check()
}

func (p *Program) check() error {
	if err := channel.CheckCommandName(p.Name); err != nil {
		return err
	}
	if !filepath.IsAbs(p.Path) {
		return fmt.Errorf("command %s: path %q is not absolute", p.Name, p.Path)
	}
	info, err := os.Stat(p.Path)
	if err != nil {
		return fmt.Errorf("command %s: %w", p.Name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("command %s: %s is no program", p.Name, p.Path)
	}
	return nil
}

// Programs runs the declared programs. It is safe for concurrent use.
type Programs struct {
	keeper   *process.Keeper
	programs map[string]*program
}

type program struct {
	Program
	rules *process.Rules
	dir   string
}

// New returns a runner of the programs. The caller must close keeper after the last run.
func New(list []Program, keeper *process.Keeper) (*Programs, error) {
	out := &Programs{keeper: keeper, programs: map[string]*program{}}
	for _, p := range list {
		if err := p.check(); err != nil {
			return nil, err
		}
		if out.programs[p.Name] != nil {
			return nil, fmt.Errorf("command %s is declared twice", p.Name)
		}
		rules, err := keeper.Rules(p.Rights)
		if err != nil {
			return nil, fmt.Errorf("command %s: %w", p.Name, err)
		}
		out.programs[p.Name] = &program{Program: p, rules: rules.With([]string{p.Path}, nil), dir: rules.Dir(p.Path)}
	}
	return out, nil
}

// Names returns the names of the programs, sorted.
func (p *Programs) Names() []string { return slices.Sorted(maps.Keys(p.programs)) }

// Run runs a program until it ends or ctx is done, and returns its exit code and the
// beginning of what it has written to its standard output and error.
func (p *Programs) Run(ctx context.Context, app, name string, input []byte) (int, []byte, error) {
	prog := p.programs[name]
	if prog == nil || !prog.Serves(app) {
		return 0, nil, channel.ErrNoCommand
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	cmd := exec.Command(prog.Path)
	cmd.Dir, cmd.Env = prog.dir, environment()
	r, err := p.start(cmd, prog.rules, input)
	if err != nil {
		return 0, nil, fmt.Errorf("start: %w", err)
	}
	return r.await(ctx)
}

// environment returns the variables of the system: the server's own may have a token.
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ", "SystemRoot"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// running is a program that has started.
type running struct {
	child  *process.Child
	in     *os.File
	out    *os.File
	wrote  chan struct{} // closed when the input was written
	read   chan struct{} // closed when the output was read
	output []byte        // set before read is closed
}

// start starts a program with pipes, whose ends of the program this process closes.
func (p *Programs) start(cmd *exec.Cmd, rules *process.Rules, input []byte) (*running, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer stdout.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stdout
	child, err := p.hold(cmd, rules)
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	r := &running{child: child, in: in, out: out, wrote: make(chan struct{}), read: make(chan struct{})}
	go func() {
		defer close(r.wrote)
		_, _ = r.in.Write(input) // lost if the program does not read it
		_ = r.in.Close()
	}()
	go func() {
		defer close(r.read)
		r.output, _ = io.ReadAll(io.LimitReader(r.out, maxOutput)) // an error ends the output as well
		_, _ = io.Copy(io.Discard, r.out)                          // so that the program does not wait
	}()
	return r, nil
}

// hold starts the program, by its open file if it gets another user.
func (p *Programs) hold(cmd *exec.Cmd, rules *process.Rules) (*process.Child, error) {
	if rules.User() {
		file, err := process.Hold(cmd)
		if err != nil {
			return nil, err
		}
		defer file.Close()
	}
	return p.keeper.Start(cmd, rules)
}

// await waits for the end of the program. When ctx is done, it asks the program to end, and
// kills it after grace.
func (r *running) await(ctx context.Context) (int, []byte, error) {
	var stopped error
	select {
	case <-r.child.Done():
	case <-ctx.Done():
		stopped = ctx.Err()
		r.child.Terminate()
		patience := time.NewTimer(grace)
		defer patience.Stop()
		select {
		case <-r.child.Done():
		case <-patience.C:
			r.child.Kill()
			<-r.child.Done()
		}
	}
	// A program that this one has started may still hold the pipes.
	_ = r.out.SetReadDeadline(time.Now().Add(lateOutput))
	_ = r.in.SetWriteDeadline(time.Now())
	<-r.read
	<-r.wrote
	_ = r.out.Close()
	code := r.child.State().ExitCode()
	switch {
	case stopped != nil:
		return code, r.output, fmt.Errorf("it did not end in time: %w", stopped)
	case code < 0:
		return code, r.output, fmt.Errorf("it was ended by %s", r.child.State())
	}
	return code, r.output, nil
}
