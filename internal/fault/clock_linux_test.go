package fault

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shiftEnv is how many seconds the clock of a process is wrong by, where its
// program was built with a clock that can be.
const shiftEnv = "WHEELWORK_TEST_CLOCK_SHIFT"

// wrongClock is two files of the standard library's package time: one line
// of time.Now is changed, and what it asks for is added. So the product has no
// clock to be set, and the program is otherwise what a release is.
const (
	nowLine = "\tsec, nsec, mono := runtimeNow()\n"
	shift   = `package time

import "syscall"

// clockShift moves what Now says, in seconds; the steady clock is not moved.
var clockShift = readShift()

func readShift() int64 {
	s, _ := syscall.Getenv("` + shiftEnv + `")
	n, _ := atoi(s)
	return int64(n)
}
`
)

// programWithClock builds the command with a clock that can be wrong. All of its
// packages are compiled anew for that, which takes a minute or two the first time.
func programWithClock(t *testing.T) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if binaries.shifted != "" {
		return binaries.shifted
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	now, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(now), "\nfunc Now() Time {\n")
	if !strings.HasPrefix(body, nowLine) {
		t.Fatal("time.Now of this Go does not begin as it did: see how its clock can be moved now")
	}
	dir := makeDir(t)
	moved := strings.Replace(string(now), "\nfunc Now() Time {\n"+nowLine, "\nfunc Now() Time {\n"+nowLine+"\tsec += clockShift\n", 1)
	overlay := map[string]map[string]string{"Replace": {
		filepath.Join(src, "time.go"):  filepath.Join(dir, "time.go"),
		filepath.Join(src, "shift.go"): filepath.Join(dir, "shift.go"),
	}}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"time.go": moved, "shift.go": shift, "overlay.json": string(list)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binaries.shifted = build(t, "wheelwork-with-clock", "-overlay", filepath.Join(dir, "overlay.json"))
	return binaries.shifted
}

// setClock starts a server or a host anew with a clock that is wrong by up to two seconds.
func setClock(c *cluster, rnd *rand.Rand) {
	p := c.servers[rnd.IntN(len(c.servers))]
	if rnd.IntN(2) == 0 {
		p = c.host(rnd)
	}
	seconds := rnd.IntN(5) - 2
	p.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[rnd.IntN(2)])
	p.mu.Lock()
	p.env = []string{shiftEnv + "=" + strconv.Itoa(seconds)}
	p.mu.Unlock()
	p.start()
	c.t.Logf("the clock of %s is wrong by %d s", p.name, seconds)
}

// TestClock shows that the clock which can be wrong is, and by how much.
func TestClock(t *testing.T) {
	if !clocksOf(t) {
		t.Skip("takes minutes to build: " + envFaults + "=long does it, and so does " + envClocks + "=1")
	}
	for _, seconds := range []int{0, 1000, -1000} {
		cmd := exec.Command(programWithClock(t), "cron", "next", "-n", "1", "-o", "json", "* * * * * *")
		cmd.Env = append(os.Environ(), shiftEnv+"="+strconv.Itoa(seconds))
		out, err := cmd.CombinedOutput()
		var next []time.Time
		if err == nil {
			err = json.Unmarshal(out, &next)
		}
		if err != nil || len(next) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		if off := time.Until(next[0]) - time.Duration(seconds)*time.Second; off < -5*time.Second || off > 5*time.Second {
			t.Errorf("with the clock wrong by %d s the next second is %v", seconds, next[0])
		}
	}
}
