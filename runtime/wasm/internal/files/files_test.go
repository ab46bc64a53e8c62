package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
)

const quota = 64 << 10

// idle is a work function that never ends the guest.
func idle(int) {}

// each runs a test with both kinds of file systems.
func each(t *testing.T, f func(t *testing.T, fs FS)) {
	t.Run("memory", func(t *testing.T) { f(t, Memory(quota, true, idle)) })
	t.Run("dir", func(t *testing.T) { f(t, directory(t, t.TempDir(), true)) })
}

func directory(t *testing.T, path string, write bool) FS {
	t.Helper()
	fs, err := Open(path, quota, write, idle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

func open(t *testing.T, fs FS, path string, flag sys.Oflag) sys.File {
	t.Helper()
	f, errno := fs.OpenFile(path, flag, 0o644)
	if errno != 0 {
		t.Fatalf("open %s: %v", path, errno)
	}
	return f
}

func write(t *testing.T, fs FS, path, text string) {
	t.Helper()
	f := open(t, fs, path, sys.O_CREAT|sys.O_TRUNC|sys.O_WRONLY)
	if n, errno := f.Write([]byte(text)); n != len(text) || errno != 0 {
		t.Fatalf("write %s: %d, %v", path, n, errno)
	}
	f.Close()
}

func read(t *testing.T, fs FS, path string) string {
	t.Helper()
	f := open(t, fs, path, sys.O_RDONLY)
	defer f.Close()
	var out []byte
	buf := make([]byte, 7)
	for {
		n, errno := f.Read(buf)
		if errno != 0 {
			t.Fatalf("read %s: %v", path, errno)
		}
		if n == 0 {
			return string(out)
		}
		out = append(out, buf[:n]...)
	}
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		write(t, fs, "a", "hello, files")
		if got := read(t, fs, "/a"); got != "hello, files" {
			t.Errorf("read %q", got)
		}
		if errno := fs.Mkdir("d", 0o755); errno != 0 {
			t.Fatal(errno)
		}
		write(t, fs, "d/b", "below")
		f := open(t, fs, "d/b", sys.O_RDWR)
		if off, errno := f.Seek(-2, io.SeekEnd); off != 3 || errno != 0 {
			t.Errorf("seek: %d, %v", off, errno)
		}
		f.Write([]byte("OWING"))
		f.Pwrite([]byte("B"), 0)
		f.Truncate(7)
		f.Close()
		if got := read(t, fs, "d/b"); got != "BelOWIN" {
			t.Errorf("after writing in it: %q", got)
		}
		f = open(t, fs, "d/b", sys.O_WRONLY|sys.O_APPEND)
		f.Seek(0, io.SeekStart)
		f.Write([]byte("+"))
		f.Truncate(10)
		f.Close()
		if got := read(t, fs, "d/b"); got != "BelOWIN+\x00\x00" {
			t.Errorf("after appending: %q", got)
		}
		if errno := fs.Rename("d/b", "c"); errno != 0 {
			t.Error(errno)
		}
		d := open(t, fs, ".", sys.O_DIRECTORY)
		defer d.Close()
		for range 2 { // the second time from the start
			seen := map[string]bool{}
			for {
				list, errno := d.Readdir(1)
				if errno != 0 {
					t.Fatal(errno)
				}
				if len(list) == 0 {
					break
				}
				seen[list[0].Name] = list[0].IsDir()
			}
			if fmt.Sprint(seen) != "map[a:false c:false d:true]" {
				t.Errorf("listing %v", seen)
			}
			d.Seek(0, io.SeekStart)
		}
	})
}

func second[T any](_ T, errno sys.Errno) sys.Errno { return errno }

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		write(t, fs, "a", "text")
		fs.Mkdir("d", 0)
		write(t, fs, "d/b", "text")
		readOnly := open(t, fs, "a", sys.O_RDONLY)
		defer readOnly.Close()
		for _, step := range []struct {
			what      string
			got, want sys.Errno
		}{
			{"unlink a directory", fs.Unlink("d"), sys.EISDIR},
			{"remove a file as one", fs.Rmdir("a"), sys.ENOTDIR},
			{"remove a full one", fs.Rmdir("d"), sys.ENOTEMPTY},
			{"unlink nothing", fs.Unlink("none"), sys.ENOENT},
			{"make what is there", fs.Mkdir("d", 0), sys.EEXIST},
			{"rename nothing", fs.Rename("none", "x"), sys.ENOENT},
			{"rename into itself", fs.Rename("d", "d/x"), sys.EINVAL},
			{"below a file", second(fs.OpenFile("a/x", sys.O_RDONLY, 0)), sys.ENOTDIR},
			{"a directory that is not", second(fs.OpenFile("a", sys.O_DIRECTORY, 0)), sys.ENOTDIR},
			{"write a directory", second(fs.OpenFile("d", sys.O_RDWR, 0)), sys.EISDIR},
			{"exclusively", second(fs.OpenFile("a", sys.O_CREAT|sys.O_EXCL|sys.O_WRONLY, 0)), sys.EEXIST},
			{"a long name", second(fs.OpenFile(strings.Repeat("n", 300), sys.O_CREAT|sys.O_WRONLY, 0)), sys.ENAMETOOLONG},
			{"a name with a zero", second(fs.OpenFile("a\x00b", sys.O_CREAT|sys.O_WRONLY, 0)), sys.EINVAL},
			{"open a file as a directory", second(fs.OpenFile("d/b/", sys.O_RDONLY, 0)), sys.ENOTDIR},
			{"create a file with the name of a directory", second(fs.OpenFile("new/", sys.O_CREAT|sys.O_WRONLY, 0)), sys.EISDIR},
			{"see a file as a directory", second(fs.Stat("a/")), sys.ENOTDIR},
			{"unlink a file as a directory", fs.Unlink("a/"), sys.ENOTDIR},
			{"unlink a directory by its slash", fs.Unlink("d/"), sys.EISDIR},
			{"rename a file as a directory", fs.Rename("a/", "x"), sys.ENOTDIR},
			{"rename a file to the name of a directory", fs.Rename("a", "x/"), sys.ENOTDIR},
			{"rename a directory to a file", fs.Rename("d", "a"), sys.ENOTDIR},
			{"rename a file to a directory", fs.Rename("a", "d"), sys.EISDIR},
			{"a symbolic link", fs.Symlink("/etc/passwd", "link"), sys.ENOSYS},
			{"a hard link", fs.Link("a", "link"), sys.ENOSYS},
			{"write what is open to read", second(readOnly.Write([]byte("x"))), sys.EBADF},
			{"cut what is open to read", readOnly.Truncate(0), sys.EBADF},
			{"remove the root", fs.Rmdir("."), sys.EINVAL},
		} {
			if step.got != step.want {
				t.Errorf("%s: %v, want %v", step.what, step.got, step.want)
			}
		}
		if read(t, fs, "a") != "text" {
			t.Error("the file has changed")
		}
	})
}

// TestRenameReplacesAnEmptyDirectory checks what POSIX says about a directory that is renamed to
// the name of another one.
func TestRenameReplacesAnEmptyDirectory(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		for _, dir := range []string{"source", "empty", "full"} {
			if errno := fs.Mkdir(dir, 0); errno != 0 {
				t.Fatal(errno)
			}
		}
		write(t, fs, "source/a", "text")
		write(t, fs, "full/b", "text")
		if errno := fs.Rename("source", "full"); errno != sys.ENOTEMPTY {
			t.Errorf("to a directory with a file: %v, want ENOTEMPTY", errno)
		}
		if errno := fs.Rename("source/", "empty/"); errno != 0 {
			t.Errorf("to an empty directory: %v", errno)
		}
		if got := read(t, fs, "empty/a"); got != "text" {
			t.Errorf("the file below has %q", got)
		}
		if _, errno := fs.Stat("source"); errno != sys.ENOENT {
			t.Errorf("the old name: %v, want ENOENT", errno)
		}
	})
}

func TestTimesOfOpenFiles(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		write(t, fs, "a", "text")
		f := open(t, fs, "a", sys.O_RDWR)
		defer f.Close()
		before, _ := f.Stat()
		if errno := f.Utimens(sys.UTIME_OMIT, before.Mtim-100); errno != 0 {
			t.Fatal(errno)
		}
		if got, _ := f.Stat(); got.Mtim != before.Mtim-100 || got.Atim != before.Atim {
			t.Errorf("times %d and %d, want %d and %d", got.Atim, got.Mtim, before.Atim, before.Mtim-100)
		}
		if errno := f.Utimens(5e9, sys.UTIME_OMIT); errno != 0 {
			t.Fatal(errno)
		}
		if got, _ := fs.Stat("a"); got.Mtim != before.Mtim-100 || got.Atim != 5e9 {
			t.Errorf("times %d and %d, want 5 s and %d", got.Atim, got.Mtim, before.Mtim-100)
		}
	})
}

// TestTimesByPath checks the way of systems that cannot set the times of an open file: it must
// not touch another file that has taken the name.
func TestTimesByPath(t *testing.T) {
	base := t.TempDir()
	root, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"a", "b"} {
		if err := root.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := root.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := time.Unix(7, 0)
	if err := chtimesByPath(root, "a", f, want, want); err != nil {
		t.Fatal(err)
	}
	if err := chtimesByPath(root, "b", f, want, want); err != sys.ENOENT {
		t.Errorf("by the name of another file: %v, want ENOENT", err)
	}
	for name, changed := range map[string]bool{"a": true, "b": false} {
		if info, err := root.Stat(name); err != nil || info.ModTime().Equal(want) != changed {
			t.Errorf("%s has time %v, %v", name, info.ModTime(), err)
		}
	}
}

// TestListingHasInodes checks the inodes of a listing, which a program compares with those of
// files, in a directory that is read in several steps.
func TestListingHasInodes(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		want := map[string]uint64{}
		for i := range 100 { // the quota of bytes allows no more
			name := fmt.Sprintf("file.%d", i)
			write(t, fs, name, "")
			st, errno := fs.Stat(name)
			if errno != 0 || st.Ino == 0 {
				t.Fatalf("%s has inode %d, %v", name, st.Ino, errno)
			}
			want[name] = st.Ino
		}
		d := open(t, fs, ".", sys.O_DIRECTORY)
		defer d.Close()
		list, errno := d.Readdir(1000)
		if errno != 0 || len(list) != len(want) {
			t.Fatalf("%d entries, %v, want %d", len(list), errno, len(want))
		}
		for _, e := range list {
			if e.Ino != want[e.Name] {
				t.Errorf("%s has inode %d in the listing, want %d", e.Name, e.Ino, want[e.Name])
			}
		}
	})
}

func TestLongListing(t *testing.T) {
	base := t.TempDir()
	const files = 2*readdirStep + 10
	for i := range files {
		if err := os.WriteFile(filepath.Join(base, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, directory(t, base, false), ".", sys.O_DIRECTORY)
	defer d.Close()
	first, errno := d.Readdir(readdirStep + 1)
	if len(first) != readdirStep+1 || errno != 0 {
		t.Errorf("%d entries, %v, want %d", len(first), errno, readdirStep+1)
	}
	rest, errno := d.Readdir(-1)
	if len(first)+len(rest) != files || errno != 0 {
		t.Errorf("%d and %d entries, %v, want %d together", len(first), len(rest), errno, files)
	}
}

// TestNothingAbove tries to reach files beside the directory.
func TestNothingAbove(t *testing.T) {
	base := t.TempDir()
	for name, text := range map[string]string{"secret": "s", "in/mine": "m"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"up": "../secret", "abs": filepath.Join(base, "secret"), "parent": "..", "fine": "mine"} {
		if err := os.Symlink(to, filepath.Join(base, "in", link)); err != nil {
			t.Skipf("needs symbolic links: %v", err)
		}
	}
	fs := directory(t, filepath.Join(base, "in"), true)
	for _, p := range []string{"../secret", "/../secret", "up", "abs", "parent/secret", "a/../../secret", filepath.Join(base, "secret")} {
		if _, errno := fs.OpenFile(p, sys.O_RDWR, 0); errno == 0 {
			t.Errorf("opened %s", p)
		}
		if _, errno := fs.Stat(p); errno == 0 {
			t.Errorf("saw %s", p)
		}
	}
	for from, to := range map[string]string{"mine": "parent/mine", "parent/secret": "stolen", "../secret": "stolen"} {
		if errno := fs.Rename(from, to); errno == 0 {
			t.Errorf("moved %s to %s", from, to)
		}
	}
	if got := read(t, fs, "fine"); got != "m" {
		t.Errorf("a link within: %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(base, "secret")); err != nil || string(text) != "s" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
}

func TestReadOnly(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "a"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fs := range map[string]FS{"memory": Memory(quota, false, idle), "dir": directory(t, base, false)} {
		for what, errno := range map[string]sys.Errno{
			"create":   second(fs.OpenFile("b", sys.O_CREAT|sys.O_WRONLY, 0)),
			"truncate": second(fs.OpenFile("a", sys.O_TRUNC, 0)),
			"write":    second(fs.OpenFile("a", sys.O_RDWR, 0)),
			"mkdir":    fs.Mkdir("d", 0),
			"unlink":   fs.Unlink("a"),
			"rename":   fs.Rename("a", "b"),
			"chmod":    fs.Chmod("a", 0),
			"touch":    fs.Utimens("a", 0, 0),
			"touch .":  open(t, fs, ".", sys.O_DIRECTORY).Utimens(0, 0),
		} {
			if errno != sys.EROFS && !(name == "memory" && errno == sys.ENOENT) {
				t.Errorf("%s: %s: %v", name, what, errno)
			}
		}
	}
	if got := read(t, directory(t, base, false), "a"); got != "text" {
		t.Errorf("read %q", got)
	}
}

func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		f := open(t, fs, "a", sys.O_CREAT|sys.O_RDWR)
		written := 0
		for {
			n, errno := f.Write(make([]byte, 1000))
			written += n
			if errno != 0 {
				break
			}
			if written > 2*quota {
				t.Fatal("no end of writing")
			}
		}
		if written > quota || written < quota-2*entryCharge-1000 {
			t.Errorf("wrote %d bytes of %d", written, quota)
		}
		for what, errno := range map[string]sys.Errno{
			"far away":     second(f.Pwrite([]byte("x"), 1<<39)),
			"beyond int64": second(f.Pwrite([]byte("x"), 1<<62)),
			"longer":       f.Truncate(1 << 39),
		} {
			if errno == 0 {
				t.Errorf("%s: written", what)
			}
		}
		f.Close()
	})
	m := Memory(quota, true, idle)
	n := 0
	for ; m.Mkdir(fmt.Sprint(n), 0) == 0; n++ {
	}
	if n != quota/entryCharge {
		t.Errorf("made %d directories, want %d", n, quota/entryCharge)
	}
}

// TestMemoryIsGivenBack fills and empties a directory in memory.
func TestMemoryIsGivenBack(t *testing.T) {
	fs := Memory(quota, true, idle)
	for range 5 {
		f := open(t, fs, "a", sys.O_CREAT|sys.O_WRONLY)
		if _, errno := f.Write(make([]byte, quota-entryCharge)); errno != 0 {
			t.Fatal(errno)
		}
		fs.Unlink("a")
		if g, errno := fs.OpenFile("b", sys.O_CREAT|sys.O_WRONLY, 0); errno == 0 {
			if _, errno := g.Write(make([]byte, entryCharge)); errno == 0 {
				t.Error("what is open still counts, even without a name")
			}
			g.Close()
			fs.Unlink("b")
		}
		f.Close()
		f.Close()
	}
	// Truncated bytes must not reappear.
	f := open(t, fs, "c", sys.O_CREAT|sys.O_RDWR)
	f.Write([]byte("secret"))
	f.Truncate(0)
	f.Truncate(6)
	if got := read(t, fs, "c"); got != strings.Repeat("\x00", 6) {
		t.Errorf("after cutting and growing: %q", got)
	}
}

// TestWorkIsTold checks that every operation calls the work function.
func TestWorkIsTold(t *testing.T) {
	told := 0
	hear := func(int) { told++ }
	real, err := Open(t.TempDir(), quota, true, hear)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	for name, fs := range map[string]FS{"memory": Memory(quota, true, hear), "dir": real} {
		f := open(t, fs, "a", sys.O_CREAT|sys.O_RDWR)
		defer f.Close()
		d := open(t, fs, ".", sys.O_DIRECTORY)
		defer d.Close()
		for what, step := range map[string]func(){
			"open":   func() { _, _ = fs.OpenFile("none", sys.O_RDONLY, 0) },
			"stat":   func() { _, _ = fs.Stat("a") },
			"lstat":  func() { _, _ = fs.Lstat("a") },
			"rename": func() { fs.Rename("a", "a") },
			"unlink": func() { fs.Unlink("none") },
			"mkdir":  func() { fs.Mkdir("a", 0) },
			"rmdir":  func() { fs.Rmdir("none") },
			"link":   func() { _, _ = fs.Readlink("a") },
			"read":   func() { _, _ = f.Read(make([]byte, 1)) },
			"pread":  func() { _, _ = f.Pread(make([]byte, 1), 0) },
			"write":  func() { _, _ = f.Write(nil) },
			"pwrite": func() { _, _ = f.Pwrite(nil, 0) },
			"list":   func() { _, _ = d.Readdir(1) },
			"touch":  func() { f.Utimens(0, 0) },
		} {
			before := told
			if step(); told == before {
				t.Errorf("%s: %s was not told", name, what)
			}
		}
	}
}

func TestHandlesAreBounded(t *testing.T) {
	each(t, func(t *testing.T, fs FS) {
		write(t, fs, "a", "x")
		var last sys.File
		n := 0
		for ; n < 2*maxOpen; n++ {
			f, errno := fs.OpenFile("a", sys.O_RDONLY, 0)
			if errno != 0 {
				break
			}
			last = f
		}
		if n != maxOpen {
			t.Errorf("%d files open at once, want %d", n, maxOpen)
		}
		last.Close()
		if f, errno := fs.OpenFile("a", sys.O_RDONLY, 0); errno != 0 {
			t.Errorf("after one was closed: %v", errno)
		} else {
			f.Close()
		}
	})
}
