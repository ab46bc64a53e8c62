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

// Guard reads r to its end, and then kills the process groups that are left. Each line of
// r is +PID, which adds the group, or -PID, which removes it. The program that [New]
// receives must call Guard with its standard input and do nothing else. It must ignore
// the signals that end its parent in an orderly way.
func Guard(r io.Reader) {
	groups := readGroups(r)
	for pid := range groups {
		if p, err := os.FindProcess(pid); err == nil {
			killGroup(p)
		}
	}
}

// readGroups returns the groups that are left when r ends. It skips a malformed line,
// because guarding the other groups is better than guarding none.
func readGroups(r io.Reader) map[int]bool {
	groups := map[int]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		pid, err := strconv.Atoi(line[1:])
		if err != nil || pid <= 1 { // kill would take 0 and negative numbers for groups other than that of a child
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

// guard is the end of the guard process in its parent.
type guard struct {
	command []string

	mu     sync.Mutex
	cmd    *exec.Cmd // nil when the guard has not been started
	in     *os.File
	groups map[int]bool
}

func newGuard(command []string) *guard {
	return &guard{command: command, groups: map[int]bool{}}
}

// ensure starts the guard if it does not run.
func (g *guard) ensure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.say("") // an empty line has no meaning, and fails if no process reads it
}

func (g *guard) add(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[pid] = true
	_ = g.say(fmt.Sprintf("+%d", pid)) // after an error, the next ensure starts a guard and sends it all groups
}

func (g *guard) remove(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, pid)
	_ = g.say(fmt.Sprintf("-%d", pid))
}

// say writes a line to the guard. If the guard has ended, say starts a new one and sends
// it all groups. The caller must hold g.mu.
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
	cmd.Args[0] = os.Args[0] // the program may have several names
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

// stop ends the guard and waits for it. The caller must hold g.mu.
func (g *guard) stop() error {
	err := g.in.Close()
	_ = g.cmd.Wait() // the state does not matter: the guard may have been killed
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
