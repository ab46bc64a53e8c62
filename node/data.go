package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// dataDir is a locked data directory.
type dataDir struct {
	path string
	lock *os.File
}

// minFree is the free space, in bytes, below which a process does not start. It is enough
// for the first segments of the journal, and keeps the store from touching a mapped page
// that has no block on the disk.
const minFree = 256 << 20

// openData makes the directory if it is missing and locks it for this process. form is
// the format version that the process writes, and the newest that it reads.
func openData(path string, form int) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32)) //nolint:errcheck // the message does without it
		f.Close()                                      //nolint:errcheck // nothing was written
		by := "another process"
		if pid := strings.TrimSpace(string(holder)); pid != "" {
			by = "process " + pid
		}
		return nil, fmt.Errorf("the data directory %s is in use by %s: stop it, or choose another directory with --data", path, by)
	}
	d := &dataDir{path: path, lock: f}
	if err := errors.Join(d.claim(), d.checkForm(form)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// Format versions of data directories: which subdirectories there are, and under which
// names. This program writes these versions and refuses newer ones. What is in a
// subdirectory has a format version of its own. In version 1 of a server's directory
// idempotency keys were rows of the store, and in version 2 the runs of a block of the
// history shared nothing. This program turns such a directory into version 3, and there
// is no way back.
const (
	serverForm = 3
	hostForm   = 1
)

// checkForm refuses a directory that a newer version has written, or that is incomplete
// because a restore was interrupted. It records the newest format version in the
// directory.
func (d *dataDir) checkForm(newest int) error {
	if _, err := os.Stat(d.join(restoring)); err == nil {
		return fmt.Errorf("the data directory %s is not whole: a restore to it was interrupted, run `wheelwork restore` again", d.path)
	}
	note := func() error { return writeFile(d.join("form"), fmt.Appendf(nil, "%d\n", newest), 0o600) }
	text, err := os.ReadFile(d.join("form"))
	if errors.Is(err, fs.ErrNotExist) { // new, or written before this file existed
		return note()
	}
	if err != nil {
		return fmt.Errorf("read the form of the data directory: %w", err)
	}
	form, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil || form < 1:
		return fmt.Errorf("the file %s says %.20q, which is no form of a data directory: bring back the file that it was", d.join("form"), text)
	case form > newest:
		return fmt.Errorf("the data directory %s has form %d, and this program understands up to form %d: start the version that wrote it, or a newer one", d.path, form, newest)
	case form < newest:
		return note()
	}
	return nil
}

// claim checks the free space and writes the process id into the lock file.
func (d *dataDir) claim() error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err == nil {
		if free := int64(st.Bavail) * int64(st.Bsize); free < minFree {
			return fmt.Errorf("the disk of %s has %d MiB free, at least %d MiB are needed to start: free some space, or choose another directory with --data", d.path, free>>20, minFree>>20)
		}
	}
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func (d *dataDir) join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// close unlocks the directory. The lock file stays: if it were removed, two processes
// could lock two different files of that name.
func (d *dataDir) close() error { return d.lock.Close() }

// idText matches a valid id.
var idText = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,200}$`)

// identity returns the id in a file. If there is none, it makes one with the prefix.
func identity(path, prefix string) (string, error) {
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		if !idText.MatchString(id) {
			return "", fmt.Errorf("the file %s is damaged: %q is no id. Bring back the file that it was, or remove it to begin with a new id", path, id)
		}
		return id, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	id := prefix + strings.ToLower(rand.Text()[:12])
	if err := writeFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the id: %w", err)
	}
	return id, nil
}
