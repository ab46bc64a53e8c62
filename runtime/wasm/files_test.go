package wasm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// filesModule loads the fixture that works on files. Its input is a letter and a path.
func filesModule(t *testing.T, cfg Config) func(input string, mounts ...runtime.FileGrant) runtime.Result {
	e := newEngine(t, cfg)
	digest := load(t, e, fixture(t, "files"))
	return func(input string, mounts ...runtime.FileGrant) runtime.Result {
		return e.Run(context.Background(), runtime.Task{
			Digest: digest, Input: []byte(input), Deadline: within(20 * time.Second), Grants: &runtime.Grants{Files: mounts},
		}, &recorder{})
	}
}

func TestFilesInMemory(t *testing.T) {
	run := filesModule(t, Config{})
	for range 2 { // the second task must not find the file of the first
		if r := run("wnote", runtime.FileGrant{Mount: "/tmp", Write: true}); r.Outcome != runtime.Succeeded || len(r.Output) != 0 {
			t.Fatalf("a new directory: %+v", r)
		}
	}
	if r := run("wnote"); r.Outcome != runtime.Retryable || r.Code != "trap" {
		t.Errorf("without a grant: %+v", r)
	}
	if r := run("wnote", runtime.FileGrant{Mount: "/tmp"}); r.Code != "trap" {
		t.Errorf("read only: %+v", r)
	}
	const ioError, badFile = 29, 8
	r := run("fbig", runtime.FileGrant{Mount: "/tmp", Write: true, Bytes: 5<<20 + 1024})
	if r.Outcome != runtime.Succeeded || u32(t, r.Output) != ioError || u32(t, r.Output[4:]) != 5 {
		t.Errorf("a flood: error %d after %d MiB", u32(t, r.Output), u32(t, r.Output[4:]))
	}
	if r := run("fbig", runtime.FileGrant{Mount: "/tmp", Write: true}); u32(t, r.Output[4:]) != 15 {
		t.Errorf("a flood under the default quota ended after %d MiB", u32(t, r.Output[4:]))
	}
	if r := run("mmany", runtime.FileGrant{Mount: "/tmp", Write: true}); u32(t, r.Output) != 255 { // and the directory itself
		t.Errorf("%d files were open at once", u32(t, r.Output))
	}
	if r := run("onote"); u32(t, r.Output) != badFile {
		t.Errorf("opening without a grant gave %d", u32(t, r.Output))
	}
}

func TestFilesOfADirectory(t *testing.T) {
	base := t.TempDir()
	shared := filepath.Join(base, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "secret"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"up": "../secret", "abs": filepath.Join(base, "secret"), "dir": ".."} {
		if err := os.Symlink(to, filepath.Join(shared, link)); err != nil {
			t.Skipf("needs symbolic links: %v", err)
		}
	}
	run := filesModule(t, Config{
		Dirs:    map[string]string{"data": shared, "gone": filepath.Join(base, "none"), "foreign": shared},
		DirApps: map[string][]string{"foreign": {"pay"}, "data": {"pay", ""}}, // tasks of these tests have no app
	})
	data := runtime.FileGrant{Mount: "/data", Dir: "data", Write: true}
	if r := run("wnote", data); r.Outcome != runtime.Succeeded || len(r.Output) != 0 {
		t.Fatalf("a new file: %+v", r)
	}
	if r := run("wnote", data); string(r.Output) != "SECRET!!" {
		t.Errorf("a directory that is named keeps its files: %+v", r)
	}
	for _, path := range []string{"../secret", "up", "abs", "dir/secret", "/etc/passwd", filepath.Join(base, "secret")} {
		if r := run("o"+path, data); r.Outcome != runtime.Succeeded || u32(t, r.Output) == 0 {
			t.Errorf("opened %s: %+v", path, r)
		}
	}
	if r := run("o"+"note", data); u32(t, r.Output) != 0 {
		t.Errorf("opening what is there gave %d", u32(t, r.Output))
	}
	for _, dir := range []string{"other", "gone", "foreign"} {
		if r := run("onote", runtime.FileGrant{Mount: "/data", Dir: dir}); r.Outcome != runtime.HostError || r.Code != "files" || !strings.Contains(r.Error, dir) {
			t.Errorf("%s: %+v", dir, r)
		}
	}
	if text, err := os.ReadFile(filepath.Join(base, "secret")); err != nil || string(text) != "outside" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
}

// TestReactorsHaveFiles runs a reactor with mounts. It must get a new instance before
// _initialize, in which it looks for them, and find nothing of an earlier task.
func TestReactorsHaveFiles(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "mounted"))
	run := func(mounts ...runtime.FileGrant) string {
		r := e.Run(context.Background(), runtime.Task{Digest: digest, Input: []byte("note"), Grants: &runtime.Grants{Files: mounts}}, &recorder{})
		if r.Outcome != runtime.Succeeded {
			t.Fatalf("%+v", r)
		}
		return fmt.Sprint(u32(t, r.Output), string(r.Output[4:]))
	}
	const made, badFile = "0", "8"
	for range 2 { // O_EXCL: the file is new each time
		if got := run(runtime.FileGrant{Mount: "/a", Write: true}); got != made+"/a" {
			t.Errorf("with a mount: %q", got)
		}
		if got := run(); got != badFile {
			t.Errorf("without one, after a task that had one: %q", got)
		}
		// The working directory of a program is the root.
		for mount, want := range map[string]string{"/other": "/other", "/": "/", ".": "/", "data/in": "data/in"} {
			if got := run(runtime.FileGrant{Mount: mount, Write: true}); got != made+want {
				t.Errorf("with a mount at %s: %q", mount, got)
			}
		}
	}
	if n := idle(e); n != 1 {
		t.Errorf("%d idle instances, want the one without files", n)
	}
}
