package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// TestDev runs the scripts against `wheelwork dev` in a separate process, like a new
// user. The scripts share the server, and each has its own jobs.
func TestDev(t *testing.T) {
	dir := t.TempDir()
	// One address: the others of this machine stay closed to alerts.
	ready := startDev(t, dir, "--egress-allow", "127.0.0.1")
	hooks := httptest.NewServer(http.HandlerFunc(receive))
	t.Cleanup(hooks.Close)
	if fromFile := readReady(t, filepath.Join(dir, "ready")); fromFile != ready {
		t.Errorf("the ready file says %+v, standard output %+v", fromFile, ready)
	}
	interpreters, err := interpreter.Dir()
	if err != nil {
		t.Fatal(err)
	}
	totals, shard := buildWASI(t, "../../examples/totals"), buildWASI(t, "testdata/shard")
	words := buildWASI(t, "../../examples/words", "-buildmode=c-shared", "-ldflags=-s -w")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/dev",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			e.Setenv("WHEELWORK_URL", ready.URL)
			e.Setenv("WHEELWORK_COMPILED", filepath.Join(e.WorkDir, "compiled"))
			e.Setenv("WHEELWORK_TOKEN", ready.Token)
			e.Setenv("TZ", "UTC")
			e.Setenv("DATA", filepath.Join(dir, "data"))
			e.Setenv("TOTALS", totals)
			e.Setenv("SHARD", shard)
			e.Setenv("WORDS", words)
			e.Setenv("HOOKS", hooks.URL)
			e.Setenv(interpreter.DirVariable, interpreters)
			return errors.Join(
				os.WriteFile(filepath.Join(e.WorkDir, "greet.wasm"), greet.Module, 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "hollow.wasm"), []byte("\x00asm\x01\x00\x00\x00"), 0o600),
				// A command that traps: (func (export "_start") unreachable), with a
				// memory.
				os.WriteFile(filepath.Join(e.WorkDir, "bad.wat.wasm"), []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01"+
					"\x07\x13\x02\x06_start\x00\x00\x06memory\x02\x00\x0a\x05\x01\x03\x00\x00\x0b"), 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "docs.yaml"), examplesOf(t, "../../docs/jobs.md"), 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, "alertdocs.yaml"), examplesOf(t, "../../docs/alerts.md"), 0o600),
			)
		},
		Condition: func(name string) (bool, error) { return haveInterpreter(interpreters, name) },
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"logs": followLog, "field": readField, "await": awaitRuns, "wrong": wrongUsage, "expand": expandFile},
	})
}

// TestCordon has a server of its own, because the scripts of TestDev share one host and need it.
func TestCordon(t *testing.T) {
	ready := startDev(t, t.TempDir())
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/cordon",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			e.Setenv("WHEELWORK_URL", ready.URL)
			e.Setenv("WHEELWORK_TOKEN", ready.Token)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"field": readField},
	})
}

// haveInterpreter evaluates the conditions of scripts that name a language.
func haveInterpreter(dir, language string) (bool, error) {
	known, ok := script.ByLanguage(language)
	if !ok {
		return false, fmt.Errorf("there is no condition %q", language)
	}
	_, err := interpreter.Load(dir, known)
	if err != nil && testkit.Required() {
		return false, err
	}
	return err == nil, nil
}

// expandFile is the script command "expand FILE": it fills the variables of the script into a file.
func expandFile(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}

// receive takes what alert channels send. Its path says how.
func receive(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/gone":
		http.Error(w, "the hook was deleted", http.StatusGone)
	case "/busy":
		http.Error(w, "come back", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// followLog is the script command "logs FILE": it follows the log of the run whose JSON
// is in a file.
func followLog(ts *testscript.TestScript, _ bool, args []string) {
	var run struct{ ID string }
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &run); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	ts.Check(ts.Exec("wheelwork", "run", "logs", run.ID, "--follow", "--timeout", "30s"))
}

// examplesOf returns the YAML documents of a documentation page.
func examplesOf(t *testing.T, page string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		documents = append(documents, string(m[1]))
	}
	if len(documents) < 5 {
		t.Fatalf("%s shows %d documents: %q", page, len(documents), documents)
	}
	return []byte(strings.Join(documents, "---\n"))
}

// readField is the script command "field NAME FIELD FILE": it sets a variable to a field
// of the JSON object in a file.
func readField(ts *testscript.TestScript, _ bool, args []string) {
	var object map[string]any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[2])), &object); err != nil {
		ts.Fatalf("%s: %v", args[2], err)
	}
	ts.Setenv(args[0], fmt.Sprint(object[args[1]]))
}

// awaitRuns is the script command "await N STATE JOB": it polls until a job has N runs in
// a state, and fails after three minutes.
func awaitRuns(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var out, errOut strings.Builder
	for began := time.Now(); time.Since(began) < 3*time.Minute; {
		out.Reset()
		command := []string{"run", "list", "--job", args[2], "--state", args[1], "-o", "jsonl", "--limit", "0"}
		if code := execute(context.Background(), command, strings.NewReader(""), &out, &errOut, ts.Getenv); code != exitOK {
			ts.Fatalf("exit code %d: %s", code, errOut.String())
		}
		if strings.Count(out.String(), "\n") == want {
			return
		}
	}
	ts.Fatalf("job %s has no %d runs in state %s:\n%s", args[2], want, args[1], out.String())
}

// startDev starts the process and returns when it is ready. The clean-up of the test
// stops it with a signal and checks that the exit code is 0 and the ready file is gone.
func startDev(t testing.TB, dir string, more ...string) node.Ready {
	t.Helper()
	file := filepath.Join(dir, "ready")
	cmd := exec.Command("wheelwork", append([]string{"dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--ready-file", file, "-o", "json"}, more...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("wheelwork dev after SIGTERM: %v", err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the ready file after the end: %v, want it gone", err)
		}
	})
	var ready node.Ready
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatalf("wheelwork dev did not become ready: %v", err)
	}
	if ready.PID != cmd.Process.Pid {
		t.Errorf("pid %d, want %d", ready.PID, cmd.Process.Pid)
	}
	if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", ready.PID)); err == nil && !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
		t.Errorf("the server would dump its memory after a crash:\n%s", limits)
	}
	return ready
}

func readReady(t testing.TB, file string) node.Ready {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ready node.Ready
	if err := json.Unmarshal(raw, &ready); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode()&fs.ModePerm != 0o600 {
		t.Errorf("the ready file, which holds a token: mode %v, %v; want 0600", info.Mode(), err)
	}
	return ready
}

// buildWASI compiles a Go program to a WASI command.
func buildWASI(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(dir)+".wasm")
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", out, ".")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", dir, err, strings.TrimSpace(string(text)))
	}
	return out
}
