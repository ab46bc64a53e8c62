package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// part is a process of the cluster with its directory. It is started, killed and
// restarted. When the process ends by itself, the part restarts it after 300 ms, as a
// supervisor does.
type part struct {
	t      testing.TB
	name   string
	binary string
	args   []string
	env    []string
	dir    string // its data; "": none
	keep   []string
	ready  string // its ready file; "": none
	own    bool   // a process of the product: its output is checked for panics and races

	mu    sync.Mutex
	life  *life
	want  bool // it should run
	wrong int  // the error of its clock, in seconds
	again int  // number of restarts because it had ended by itself
	why   []string
}

// life is one life of a process.
type life struct {
	cmd  *exec.Cmd
	says *output
	done chan struct{}
	err  error // set before done is closed
}

// output holds the recent output of a process.
type output struct {
	mu  sync.Mutex
	buf []byte
	bad string // the first line of a panic or of a race
	why []byte // the output from that line on, up to whyKept bytes
}

const whyKept = 16 << 10

func (o *output) Write(p []byte) (int, error) {
	const kept = 64 << 10
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bad == "" {
		for _, word := range []string{"panic:", "fatal error:", "WARNING: DATA RACE"} {
			if i := bytes.Index(p, []byte(word)); i >= 0 {
				o.bad, _, _ = strings.Cut(string(p[i:]), "\n")
				o.why = []byte{}
			}
		}
	}
	if o.why != nil { // the stack of the first goroutine shows the cause
		o.why = append(o.why, p[:min(len(p), whyKept-len(o.why))]...)
	}
	if o.buf = append(o.buf, p...); len(o.buf) > 2*kept {
		o.buf = slices.Clone(o.buf[len(o.buf)-kept:])
	}
	return len(p), nil
}

func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf[max(0, len(o.buf)-n):])
}

func (p *part) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = true
	if p.life == nil {
		p.startLocked()
	}
}

func (p *part) startLocked() {
	if p.ready != "" {
		os.Remove(p.ready) //nolint:errcheck // of an earlier life
	}
	l := &life{cmd: exec.Command(p.binary, p.args...), says: &output{}, done: make(chan struct{})}
	l.cmd.Stderr = l.says
	l.cmd.Env = append(os.Environ(), p.env...)
	if err := l.cmd.Start(); err != nil {
		p.t.Errorf("start %s: %v", p.name, err)
		p.want = false
		return
	}
	p.life = l
	go func() {
		l.err = l.cmd.Wait()
		p.ended(l) // before done closes: a waiter may start the next life at once
		close(l.done)
	}()
}

// ended restarts a process that ended by itself.
func (p *part) ended(l *life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.says.bad != "" && p.own {
		p.t.Errorf("%s said %q\n%s", p.name, l.says.bad, l.says.why)
	}
	if p.life != l {
		return
	}
	p.life = nil
	if !p.want {
		return
	}
	said := strings.Split(strings.TrimSpace(l.says.tail(2000)), "\n")
	p.why = append(p.why, fmt.Sprintf("%v: %s", l.err, said[len(said)-1]))
	p.again++
	time.AfterFunc(300*time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.want && p.life == nil {
			p.startLocked()
		}
	})
}

// end ends the process with a signal and waits until it is gone.
func (p *part) end(s syscall.Signal) {
	p.mu.Lock()
	p.want = false
	l := p.life
	p.mu.Unlock()
	if l == nil {
		return
	}
	p.send(l, s)
	select {
	case <-l.done:
	case <-time.After(30 * time.Second):
		p.t.Errorf("%s did not end within 30 s of %v\n%s", p.name, s, l.says.tail(4000))
		p.send(l, syscall.SIGQUIT)
		<-l.done
	}
}

func (p *part) send(l *life, s syscall.Signal) {
	if err := l.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to %s: %v", s, p.name, err)
	}
}

// signal sends a signal to the process if it runs.
func (p *part) signal(s syscall.Signal) {
	p.mu.Lock()
	l := p.life
	p.mu.Unlock()
	if l != nil {
		p.send(l, s)
	}
}

func (p *part) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return 0
	}
	return p.life.cmd.Process.Pid
}

// isReady reports whether this life of the process has written its ready file.
func (p *part) isReady() bool {
	var says struct{ PID int }
	raw, err := os.ReadFile(p.ready)
	return err == nil && json.Unmarshal(raw, &says) == nil && says.PID != 0 && says.PID == p.pid()
}

// wipe deletes the process's data, except for the files that an operator provided. The
// process must not run.
func (p *part) wipe() {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Error(err)
	}
	for _, e := range entries {
		if slices.Contains(p.keep, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(p.dir, e.Name())); err != nil {
			p.t.Error(err)
		}
	}
}

// wait sleeps for the duration of a fault, or between two polls.
func wait(d time.Duration) { <-time.After(d) }

// until waits for a condition that other processes bring about, and returns how long it
// took. On a timeout, but describes the current state.
func until(t testing.TB, what string, limit time.Duration, is func() bool, but ...func() string) time.Duration {
	t.Helper()
	begin := time.Now()
	for !is() {
		if time.Since(begin) > limit {
			for _, b := range but {
				what += ", but " + b()
			}
			t.Fatalf("waited %v for %s", limit, what)
		}
		wait(20 * time.Millisecond)
	}
	return time.Since(begin)
}
