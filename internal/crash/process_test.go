package crash

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// program is the binary and the way its processes are started: always on the same
// directory and address.
type program struct {
	binary, data, listen string
	ready                string   // path of the ready file; "": beside the data
	flags                []string // further flags of dev
}

func (p program) readyFile() string { return cmp.Or(p.ready, p.data+".ready") }

// buildProgram builds the command of this checkout.
func buildProgram(t *testing.T, address string) program {
	t.Helper()
	dir := t.TempDir()
	p := program{binary: filepath.Join(dir, "wheelwork"), data: filepath.Join(t.ArtifactDir(), "data"), listen: address}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", p.binary, "github.com/wheelworkhq/wheelwork/cmd/wheelwork").CombinedOutput()
	if err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return p
}

// ready is the object that a process prints when it serves.
type ready struct {
	URL, GRPC, Token string
	PID              int
}

// process is one life of the program.
type process struct {
	cmd   *exec.Cmd
	says  output        // standard error; complete after done
	ready chan ready    // receives one element when the process is ready; closed without one when it never will be
	done  chan struct{} // closed when the process has ended, after err is set
	err   error
}

// start executes the program without waiting. The caller ends the process with kill or
// stop.
func (p program) start(t *testing.T) *process {
	t.Helper()
	r := &process{
		cmd:   exec.Command(p.binary, append([]string{"dev", "--data", p.data, "--listen", p.listen, "--ready-file", p.readyFile(), "--sample=false", "-o", "json"}, p.flags...)...),
		ready: make(chan ready, 1),
		done:  make(chan struct{}),
	}
	r.cmd.Stderr = &r.says
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		// The process prints the object after it has written the ready file. The file
		// alone proves nothing: a killed process may have left it.
		var says ready
		if json.NewDecoder(out).Decode(&says) == nil {
			r.ready <- says
		}
		close(r.ready)
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	return r
}

// await waits until the process is ready.
func (r *process) await(t *testing.T, p program) ready {
	t.Helper()
	const patience = 30 * time.Second
	select {
	case says, ok := <-r.ready:
		if !ok {
			<-r.done
			t.Fatalf("the process ended before it was ready: %v\n%s", r.err, r.says.Bytes())
		}
		var file ready
		if raw, err := os.ReadFile(p.readyFile()); err != nil || json.Unmarshal(raw, &file) != nil || file != says {
			t.Fatalf("the ready file holds %+v (%v), want %+v", file, err, says)
		}
		return says
	case <-time.After(patience):
		r.kill(t)
		t.Fatalf("the process was not ready within %v\n%s", patience, r.says.Bytes())
	}
	return ready{}
}

// kill ends the process like a power failure and returns when the process is gone. The
// test fails when the process had already exited with an error.
func (r *process) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-r.done
	var exit *exec.ExitError
	if errors.As(r.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return
	}
	if r.err != nil {
		t.Errorf("the process ended before it was killed: %v\n%s", r.err, r.says.Bytes())
	}
}

// terminate sends SIGTERM.
func (r *process) terminate(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// stop shuts the process down and waits for it.
func (r *process) stop(t *testing.T) {
	t.Helper()
	r.terminate(t)
	<-r.done
	if r.err != nil {
		t.Errorf("the process after SIGTERM: %v\n%s", r.err, r.says.Bytes())
	}
}
