package crash

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// ownDisk mounts a separate file system that the test may break.
func ownDisk(t *testing.T) string {
	t.Helper()
	image, path := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 1500<<20); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop,errors=remount-ro", image, path}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			testkit.Lacks(t, "needs a file system in a file: %v: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// shutDown makes every later access to an ext4 file system fail with EIO, like a dead
// disk.
func shutDown(t *testing.T, path string) {
	t.Helper()
	const (
		ext4IocShutdown = 0x8004587d
		noLogFlush      = 2
	)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	var how [4]byte
	binary.NativeEndian.PutUint32(how[:], noLogFlush)
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ext4IocShutdown, uintptr(unsafe.Pointer(&how[0]))); e != 0 {
		t.Fatal(e)
	}
}

// makeReadOnly makes the kernel abort a file system, which is read-only afterwards.
func makeReadOnly(t *testing.T, path string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,abort", path).CombinedOutput(); err != nil {
		t.Logf("remount: %v\n%s", err, out) // the command reports an error although the abort succeeded
	}
	if err := os.WriteFile(filepath.Join(path, "probe"), nil, 0o600); err == nil {
		t.Fatal("the file system can still be written")
	}
}

// TestDeadDisk breaks the disk under a server. The server must exit with a code and a
// reason, by itself or after SIGTERM, and must start again when the disk works.
func TestDeadDisk(t *testing.T) {
	p := buildProgram(t, testkit.FreeAddress(t))
	for name, c := range map[string]struct {
		busy, terminate bool
		lose            func(*testing.T, string)
	}{
		"dies, at work":             {busy: true, lose: shutDown},
		"dies, idle":                {lose: shutDown},
		"dies, and SIGTERM comes":   {busy: true, terminate: true, lose: shutDown},
		"becomes read-only, busy":   {busy: true, lose: makeReadOnly},
		"becomes read-only, idle":   {lose: makeReadOnly},
		"the journal is deleted":    {lose: deleteJournal},
		"the journal is moved away": {busy: true, lose: moveJournal},
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			disk := ownDisk(t)
			p.data = filepath.Join(disk, "data")
			p.ready = filepath.Join(t.TempDir(), "ready")
			r := p.start(t)
			token := r.await(t, p).Token
			if c.busy {
				prepare(t, "http://"+p.listen, token) // applies two schedules with a planned time every second
				go trigger(t, p, token)
			}
			c.lose(t, disk)
			begin := time.Now()
			if c.terminate {
				r.terminate(t)
			}
			select {
			case <-r.done:
			case <-time.After(time.Minute):
				t.Errorf("the process did not end\n%s", r.says.Bytes())
				r.kill(t)
				return
			}
			t.Logf("the process ended %v after its disk", time.Since(begin).Round(10*time.Millisecond))
			if r.err == nil {
				t.Errorf("the process ended as if nothing were wrong\n%s", r.says.Bytes())
			}
			if said := string(r.says.Bytes()); !strings.Contains(said, "read-only") && !strings.Contains(said, "disk") {
				t.Errorf("the process gave no reason:\n%s", said)
			}
		})
	}
}

// trigger triggers jobs until the server is gone.
func trigger(t *testing.T, p program, token string) {
	c, err := sdk.Dial(t.Context(), "http://"+p.listen, sdk.Options{Token: token, RetryFor: -1})
	for err == nil {
		_, err = c.Trigger(t.Context(), sdk.Trigger{Job: jobName(0), Input: make([]byte, 60_000)})
	}
}

func deleteJournal(t *testing.T, disk string) {
	names, err := filepath.Glob(filepath.Join(disk, "data", "journal", "*.s*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func moveJournal(t *testing.T, disk string) {
	if err := os.Rename(filepath.Join(disk, "data", "journal"), filepath.Join(disk, "elsewhere")); err != nil {
		t.Fatal(err)
	}
}
