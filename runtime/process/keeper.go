package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"syscall"

	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

// ErrClosed is the error of Start after Close.
var ErrClosed = errors.New("the host is shutting down")

// Keeper starts programs, and kills them when it is closed or when this process ends. It
// is safe for concurrent use.
type Keeper struct {
	starts chan func()
	thread chan struct{} // closed when the thread that starts the programs has ended
	guard  *guard
	policy Policy
	walls  sandbox.Walls

	mu       sync.Mutex
	closed   bool
	children map[*Child]struct{}
}

// New returns a Keeper without a policy. guard is the command line of a program that calls
// [Guard] with its standard input. Without a guard, the processes that a program has
// started may outlive a host that is killed.
func New(guard ...string) *Keeper { return NewKeeper(Policy{}, guard...) }

// NewKeeper returns a Keeper whose programs have the rules of a policy; see [New].
func NewKeeper(p Policy, guard ...string) *Keeper {
	k := &Keeper{starts: make(chan func()), thread: make(chan struct{}), children: map[*Child]struct{}{}, policy: p, walls: sandbox.Probe()}
	if p.Temp != "" {
		left, _ := filepath.Glob(filepath.Join(os.TempDir(), p.Temp+"*")) // the pattern is well formed
		for _, dir := range left {
			_ = os.RemoveAll(dir) // what cannot be removed takes only space
		}
	}
	if len(guard) > 0 {
		k.guard = newGuard(guard)
	}
	go k.start()
	return k
}

// start starts the programs on one locked thread. The kernel kills a program when the
// thread that started it ends, not only when the process ends. Without the lock, Go may
// end the thread at any time.
func (k *Keeper) start() {
	goruntime.LockOSThread()
	defer close(k.thread)
	for f := range k.starts {
		f()
	}
}

// Start starts a program with rules; nil: with the rights of this process. The Keeper waits
// for its end, so the caller must use [Child.Done] and not cmd.Wait. Standard input, output
// and error must be files or nil; then no goroutine has to copy.
func (k *Keeper) Start(cmd *exec.Cmd, rules *Rules) (_ *Child, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	if k.guard != nil {
		if err := k.guard.ensure(); err != nil {
			return nil, fmt.Errorf("start the guard: %w", err)
		}
	}
	separate(cmd)
	c := &Child{cmd: cmd, done: make(chan struct{})}
	defer func() {
		if err != nil && cmd.Process == nil {
			c.clear()
		}
	}()
	if rules, err = k.prepare(c, rules); err != nil {
		return nil, err
	}
	if err := k.begin(c, rules); err != nil {
		return nil, err
	}
	if k.guard != nil {
		k.guard.add(cmd.Process.Pid)
	}
	k.children[c] = struct{}{}
	go k.reap(c)
	// This limit is one of each process, so it is against mistakes only. Processes that the
	// program starts before this line runs do not have it.
	if rules != nil && rules.memory > 0 && c.group == nil {
		if err := limit(cmd.Process.Pid, rules.memory); err != nil && !errors.Is(err, syscall.ESRCH) { // ESRCH: it has ended
			c.Kill()
			return nil, fmt.Errorf("limit the program: %w", err)
		}
	}
	return c, nil
}

// prepare makes what a program needs beside itself.
func (k *Keeper) prepare(c *Child, rules *Rules) (_ *Rules, err error) {
	if rules == nil {
		return nil, nil
	}
	if rules.as != nil {
		rules.as.become(c.cmd)
	}
	if rules.Private() {
		if c.temp, err = os.MkdirTemp("", k.policy.Temp); err != nil {
			return nil, err
		}
		if err := rules.Own(c.temp); err != nil {
			return nil, err
		}
		c.cmd.Env = append(c.cmd.Env, "TMPDIR="+c.temp)
		rules = rules.With(nil, []string{c.temp})
	}
	if g := k.policy.Groups; g != nil {
		if c.group, err = g.group(rules.memory, rules.processes); err != nil {
			return nil, fmt.Errorf("make its control group: %w", err)
		}
		c.group.enter(c.cmd)
	}
	return rules, nil
}

// begin starts a program, in its box if it has one.
func (k *Keeper) begin(c *Child, rules *Rules) error {
	started := make(chan error, 1)
	if !rules.Private() {
		k.starts <- func() { started <- c.cmd.Start() }
		return <-started
	}
	// The box encloses a thread of its own, and the thread starts the program. So no
	// instruction of the program is outside of the box, and no process in between costs the
	// 20 ms that this program takes to start; see BenchmarkExec of runtime/builtin. The
	// thread must live as long as the program, because the kernel kills the program when
	// the thread ends. It does nothing else: whatever it did would be enclosed as well.
	go func() {
		goruntime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := rules.box.Enter()
		if err != nil {
			err = fmt.Errorf("enclose the program: %w", err)
		} else {
			err = c.cmd.Start()
		}
		started <- err
		if err == nil {
			<-c.done
		}
	}()
	return <-started
}

// reap waits for the end of a program, kills the rest of its group and forgets it.
func (k *Keeper) reap(c *Child) {
	wait(c.cmd, func() {
		c.mu.Lock()
		killGroup(c.cmd.Process)
		c.ended = true
		c.mu.Unlock()
		if k.guard != nil {
			k.guard.remove(c.cmd.Process.Pid)
		}
	})
	c.clear()
	k.mu.Lock()
	delete(k.children, c)
	k.mu.Unlock()
	close(c.done)
}

// Close kills every program that still runs, and waits for their ends.
func (k *Keeper) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed = true
	var left []*Child
	for c := range k.children {
		left = append(left, c)
	}
	k.mu.Unlock()
	for _, c := range left {
		c.Kill()
	}
	for _, c := range left {
		<-c.done
	}
	close(k.starts)
	<-k.thread
	if k.guard != nil {
		return k.guard.close()
	}
	return nil
}

// Child is a program that was started.
type Child struct {
	cmd   *exec.Cmd
	done  chan struct{}
	temp  string // its private folder; "": none
	group *group // nil: none

	mu    sync.Mutex
	ended bool // the system may give its PID to another process
}

// clear removes what the program had beside itself, after its end.
func (c *Child) clear() {
	if c.group != nil {
		c.group.end()
	}
	if c.temp != "" {
		_ = os.RemoveAll(c.temp) // the next start tries again
	}
}

// PID returns the number of the process, which is also that of its group.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done returns a channel that is closed when the program has ended and its group has been
// killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// State returns how the program ended, or nil before Done is closed.
func (c *Child) State() *os.ProcessState {
	select {
	case <-c.done:
		return c.cmd.ProcessState
	default:
		return nil
	}
}

// Kill kills the program and its group.
func (c *Child) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		killGroup(c.cmd.Process)
	}
}

// Terminate asks the group to end, on systems that have such a signal.
func (c *Child) Terminate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		terminateGroup(c.cmd.Process)
	}
}
