//go:build unix

package files

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tetratelabs/wazero/experimental/sys"
)

func TestPipesDoNotHold(t *testing.T) {
	base := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(base, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := directory(t, base, true)
	for _, flag := range []sys.Oflag{sys.O_RDONLY, sys.O_WRONLY, sys.O_RDWR} {
		if _, errno := fs.OpenFile("pipe", flag, 0); errno == 0 {
			t.Errorf("opened a pipe with %v", flag)
		}
	}
	for _, path := range [][2]string{{"pipe/a", "b"}, {"pipe", "pipe/b"}} {
		if errno := fs.Rename(path[0], path[1]); errno != sys.ENOTDIR {
			t.Errorf("rename %s to %s: %v, want ENOTDIR", path[0], path[1], errno)
		}
	}
}
