package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
)

// ErrClosed is the error of Start after Close.
var ErrClosed = errors.New("the host is shutting down")

// Keeper starts programs, and kills them when it is closed or when this process ends. It
// is safe for concurrent use.
type Keeper struct {
	starts chan func()
	thread chan struct{} // closed when the thread that starts the programs has ended
	guard  *guard

	mu       sync.Mutex
	closed   bool
	children map[*Child]struct{}
}

// New returns a Keeper. guard is the command line of a program that calls [Guard] with
// its standard input. Without a guard, the processes that a program has started may
// outlive a host that is killed.
func New(guard ...string) *Keeper {
	k := &Keeper{starts: make(chan func()), thread: make(chan struct{}), children: map[*Child]struct{}{}}
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

// Start starts a program. The Keeper waits for its end, so the caller must use
// [Child.Done] and not cmd.Wait. Standard input, output and error must be files or nil;
// then no goroutine has to copy.
func (k *Keeper) Start(cmd *exec.Cmd) (*Child, error) {
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
	started := make(chan error, 1)
	k.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, done: make(chan struct{})}
	if k.guard != nil {
		k.guard.add(cmd.Process.Pid)
	}
	k.children[c] = struct{}{}
	go k.reap(c)
	return c, nil
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
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	ended bool // the system may give its PID to another process
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
