package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nowLine is the first line of time.Now. In a program with a wrong clock the shift is
// appended to the same line. So the product needs no adjustable clock, and the rest of
// the program is the same as in a release.
const nowLine = "\tsec, nsec, mono := runtimeNow()\n"

// offsets holds the errors of the wrong clocks, in seconds.
var offsets = []int{-2, 2}

// programWithClock links the command with a clock that is wrong by some seconds.
//
// The usual way, `go build -overlay`, would recompile every package that imports time,
// which takes minutes. Those packages need no new code: only the code of one function
// changes, and that function is never inlined. So this function compiles only the package
// time, gives the object the fingerprint of the original, and links the program from the
// objects that the usual build has left in the cache. TestClock checks the result.
func programWithClock(t *testing.T, seconds int) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if at := binaries.shifted[seconds]; at != "" {
		return at
	}
	dir := filepath.Join(makeDir(t), fmt.Sprint("clock", seconds))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const command = "github.com/wheelworkhq/wheelwork/cmd/wheelwork"
	archives := map[string]string{} // by package
	for line := range strings.Lines(output1(t, "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", command)) {
		if path, at, _ := strings.Cut(strings.TrimSpace(line), "="); at != "" {
			archives[path] = at
		}
	}
	usual, err := os.ReadFile(archives["time"])
	if err != nil {
		t.Fatal(err)
	}
	moved, err := os.ReadFile(movedTime(t, dir, seconds))
	if err != nil {
		t.Fatal(err)
	}
	if err := takeFingerprint(moved, usual); err != nil {
		t.Fatal(err)
	}
	archives["time"] = write(t, dir, "time.a", string(moved))
	var config strings.Builder
	for path, at := range archives {
		fmt.Fprintf(&config, "packagefile %s=%s\n", path, at)
	}
	path := filepath.Join(dir, "wheelwork")
	output1(t, "go", "tool", "link", "-o", path, "-importcfg", write(t, dir, "link.cfg", config.String()), "-buildmode=exe", archives[command])
	if binaries.shifted == nil {
		binaries.shifted = map[int]string{}
	}
	binaries.shifted[seconds] = path
	return path
}

// movedTime compiles the package time with the changed line.
func movedTime(t *testing.T, dir string, seconds int) string {
	t.Helper()
	source := filepath.Join(output1(t, "go", "env", "GOROOT"), "src", "time", "time.go")
	now, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	before, body, _ := strings.Cut(string(now), "\nfunc Now() Time {\n")
	rest, ok := strings.CutPrefix(body, nowLine)
	if !ok {
		t.Fatal("time.Now of this Go does not begin as it did: see how its clock can be moved now")
	}
	changed := fmt.Sprintf("%s\nfunc Now() Time {\n%s; sec += %d\n%s", before, strings.TrimSuffix(nowLine, "\n"), seconds, rest)
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: write(t, dir, "time.go", changed)}})
	if err != nil {
		t.Fatal(err)
	}
	return output1(t, "go", "list", "-export", "-overlay", write(t, dir, "overlay.json", string(list)), "-f", "{{.Export}}", "time")
}

// takeFingerprint gives an object the fingerprint of another one. The linker then accepts
// it in place of the other one. The fingerprint is in the eight bytes after the magic of
// a Go object.
func takeFingerprint(object, of []byte) error {
	mark := []byte("\x00go120ld")
	to, from := bytes.Index(object, mark), bytes.Index(of, mark)
	if to < 0 || from < 0 || bytes.Count(object, mark) != 1 || bytes.Count(of, mark) != 1 {
		return errors.New("objects of this Go are not as they were: see how its clock can be moved now")
	}
	copy(object[to+len(mark):][:8], of[from+len(mark):][:8])
	return nil
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// output1 runs a command and returns its standard output.
func output1(t *testing.T, name string, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args[0], err, said.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// setClock restarts a server or a host with a clock that is wrong by two seconds, or with
// a correct one.
func setClock(c *cluster, rnd *rand.Rand) {
	p := c.servers[rnd.IntN(len(c.servers))]
	if rnd.IntN(2) == 0 {
		p = c.host(rnd)
	}
	binary, wrong := c.binary, 0
	if was := p.wrong; was == 0 || rnd.IntN(3) > 0 {
		wrong = offsets[rnd.IntN(len(offsets))]
		binary = programWithClock(c.t, wrong)
	}
	p.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[rnd.IntN(2)])
	p.mu.Lock()
	p.binary, p.wrong = binary, wrong
	p.mu.Unlock()
	p.start()
	c.t.Logf("the clock of %s is wrong by %d s", p.name, wrong)
}

// TestClock checks that the wrong clocks are wrong by the intended number of seconds.
func TestClock(t *testing.T) {
	formOf(t)
	programs := map[int]string{0: program(t)}
	for _, seconds := range offsets {
		begin := time.Now()
		programs[seconds] = programWithClock(t, seconds)
		t.Logf("the program whose clock is wrong by %d s took %v", seconds, time.Since(begin).Round(time.Millisecond))
	}
	for seconds, binary := range programs {
		before := time.Now()
		out, err := exec.Command(binary, "cron", "next", "-n", "1", "-o", "json", "* * * * * *").CombinedOutput()
		after := time.Now()
		var next []time.Time
		if err == nil {
			err = json.Unmarshal(out, &next)
		}
		if err != nil || len(next) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		// The next second of the wrong clock, computed between before and after.
		off := time.Duration(seconds) * time.Second
		if next[0].Before(before.Add(off).Truncate(time.Second)) || next[0].After(after.Add(off+time.Second)) {
			t.Errorf("with the clock wrong by %d s the next second is %v, asked for from %v to %v", seconds, next[0], before, after)
		}
	}
}
