package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// Guard kills process groups when r ends. r holds a line for each: +PID when the
// group is to be guarded and -PID when it is gone. It is what the program that
// [New] is given does with its standard input and nothing else; it has to ignore
// the signals that end its parent in order.
func Guard(r io.Reader) {
	groups := readGroups(r)
	for pid := range groups {
		if p, err := os.FindProcess(pid); err == nil {
			killGroup(p)
		}
	}
}

// readGroups returns the groups that are left when r ends. A line that is none
// is passed over: to guard the rest is better than to guard nothing.
func readGroups(r io.Reader) map[int]bool {
	groups := map[int]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		pid, err := strconv.Atoi(line[1:])
		if err != nil || pid <= 1 { // 0 and below would be other groups than a child's
			continue
		}
		switch line[0] {
		case '+':
			groups[pid] = true
		case '-':
			delete(groups, pid)
		}
	}
	return groups
}

// guard is the parent's end of the guard process.
type guard struct {
	command []string

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: not started
	in     *os.File
	groups map[int]bool
}

func newGuard(command []string) *guard {
	return &guard{command: command, groups: map[int]bool{}}
}

// ensure starts the guard if there is none, or if it was killed.
func (g *guard) ensure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.say("") // an empty line says nothing, and fails when nobody reads
}

func (g *guard) add(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[pid] = true
	_ = g.say(fmt.Sprintf("+%d", pid)) // one that cannot start now is started by the next ensure, which tells it all
}

func (g *guard) remove(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, pid)
	_ = g.say(fmt.Sprintf("-%d", pid))
}

// say writes a line, to a new guard if the old one is gone. g.mu must be held.
func (g *guard) say(line string) error {
	if g.cmd != nil {
		if _, err := fmt.Fprintln(g.in, line); err == nil {
			return nil
		}
		_ = g.stop()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(g.command[0], g.command[1:]...)
	cmd.Args[0] = os.Args[0] // it may be one of several names of this program
	cmd.Stdin, cmd.Env = r, []string{}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	g.cmd, g.in = cmd, w
	for pid := range g.groups {
		if _, err := fmt.Fprintf(w, "+%d\n", pid); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the guard and waits for it. g.mu must be held.
func (g *guard) stop() error {
	err := g.in.Close()
	_ = g.cmd.Wait() // it may have been killed: that is why it is stopped
	g.cmd, g.in = nil, nil
	return err
}

func (g *guard) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil {
		return nil
	}
	return g.stop()
}
