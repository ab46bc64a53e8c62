package verifier

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	goruntime "runtime"

	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

// Probe starts a child with all walls, and returns an error that names what the system
// refuses. Then children are started without namespaces; the other walls are those of
// [sandbox.Probe]. Without a call of Probe there are no namespaces. Probe must not be called
// together with another method.
func (g *Verifier) Probe() error {
	if len(g.Command) == 0 || g.Sandbox == sandbox.Off {
		return nil
	}
	err := sandbox.Probe().Missing()
	if goruntime.GOOS != "linux" {
		return err
	}
	cmd := exec.CommandContext(context.Background(), g.Command[0], g.Command[1:]...)
	cmd.Env = []string{} // without its limits, the child ends at once
	group(cmd)
	g.separate = true
	if refused := g.start(cmd, work{}); refused != nil {
		g.separate = false
		return errors.Join(err, fmt.Errorf("this system refuses a process of the server namespaces of its own (user.max_user_namespaces, RestrictNamespaces= of systemd): %w", refused))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its state does not matter
	return err
}

// start starts the child with the walls that there are.
func (g *Verifier) start(cmd *exec.Cmd, w work) error {
	if g.Sandbox == sandbox.Off {
		return cmd.Start()
	}
	// A child that compiles hostile input may be taken over. It has its program, its folder
	// of machine code and its pipes, and no file, key or address beside.
	box := sandbox.Box{Read: []string{cmd.Path}, Namespaces: g.separate}
	switch {
	case w.write:
		box.Write = []string{w.folder}
	case w.folder != "":
		box.Read = append(box.Read, w.folder)
	}
	if g.separate {
		separate(cmd)
	}
	started := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // and never unlock: the enclosed thread ends with the goroutine
		err := box.Enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}
