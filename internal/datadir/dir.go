package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Dir is a locked data directory.
type Dir struct {
	Path string
	lock *os.File
}

// minFree is the free space, in bytes, below which a process does not start. It is enough
// for the first segments of the journal, and keeps the store from touching a mapped page
// that has no block on the disk.
const minFree = 256 << 20

// Open makes the directory if it is missing and locks it for this process. form is
// the format version that the process writes, and the newest that it reads.
func Open(path string, form int) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if err := checkForeign(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := lockFile(f); errors.Is(err, errors.ErrUnsupported) {
		return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", path, err), f.Close())
	} else if err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32)) //nolint:errcheck // the message does without it
		f.Close()                                      //nolint:errcheck // nothing was written
		by := "another process"
		if pid := strings.TrimSpace(string(holder)); pid != "" {
			by = "process " + pid
		}
		return nil, fmt.Errorf("the data directory %s is in use by %s: stop it, or choose another directory with --data", path, by)
	}
	d := &Dir{Path: path, lock: f}
	if err := errors.Join(d.claim(), d.checkForm(form)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Format versions of data directories: which subdirectories there are, and under which
// names. This program writes these versions and refuses newer ones. What is in a
// subdirectory has a format version of its own. In version 1 of a server's directory
// idempotency keys were rows of the store, and in version 2 the runs of a block of the
// history shared nothing. In version 3 a store had no revisions, and in version 4 no
// audit log, and the journal no principals. This program turns such a directory into version 5,
// and there is no way back.
const (
	ServerForm = 5
	HostForm   = 1
)

// checkForm refuses a directory that a newer version has written, or that is incomplete
// because a restore was interrupted. It records the newest format version in the
// directory.
func (d *Dir) checkForm(newest int) error {
	if _, err := os.Stat(d.Join(RestoringFile)); err == nil {
		return fmt.Errorf("the data directory %s is not whole: a restore to it was interrupted, run `wheelwork restore` again", d.Path)
	}
	note := func() error { return WriteFile(d.Join("form"), fmt.Appendf(nil, "%d\n", newest), 0o600) }
	text, err := os.ReadFile(d.Join("form"))
	if errors.Is(err, fs.ErrNotExist) { // new, or written before this file existed
		return note()
	}
	if err != nil {
		return fmt.Errorf("read the form of the data directory: %w", err)
	}
	form, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil || form < 1:
		return fmt.Errorf("the file %s says %.20q, which is no form of a data directory: bring back the file that it was", d.Join("form"), text)
	case form > newest:
		return fmt.Errorf("the data directory %s has form %d, and this program understands up to form %d: start the version that wrote it, or a newer one", d.Path, form, newest)
	case form < newest:
		return note()
	}
	return nil
}

// checkForeign refuses a directory with files of another program. Operators may put
// credentials and hidden files into a new directory.
func checkForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	foreign := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case slices.Contains([]string{"form", RestoringFile, ClusteredFile, "server-id", "journal", "store", "modules", "ingress", "host", "etcd", "spool", "id", PartitionsDir}, name):
			return nil
		case name == "lock", name == "lost+found", name[0] == '.', strings.HasSuffix(name, "token"),
			slices.Contains([]string{".key", ".pem", ".crt"}, filepath.Ext(name)):
		case foreign == "":
			foreign = name
		}
	}
	if foreign == "" {
		return nil
	}
	return fmt.Errorf("the directory %s holds files of another program, for example %s: choose an empty or a new directory with --data", dir, foreign)
}

// claim checks the free space and writes the process id into the lock file.
func (d *Dir) claim() error {
	if free, known := FreeBytes(d.Path); known && free < minFree {
		return fmt.Errorf("the disk of %s has %d MiB free, at least %d MiB are needed to start: free some space, or choose another directory with --data", d.Path, free>>20, minFree>>20)
	}
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// Join returns a path in the directory.
func (d *Dir) Join(parts ...string) string {
	return filepath.Join(append([]string{d.Path}, parts...)...)
}

// Close unlocks the directory. The lock file stays: if it were removed, two processes
// could lock two different files of that name.
func (d *Dir) Close() error { return d.lock.Close() }

// idText matches a valid id.
var idText = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,200}$`)

// Identity returns the id in a file. If there is none, it makes one with the prefix.
func Identity(path, prefix string) (string, error) {
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
	if err := WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the id: %w", err)
	}
	return id, nil
}

// ClusteredFile is the file that marks the directory of a cluster's server, whose journals
// are in etcd. No other cluster may begin in such a directory.
const ClusteredFile = "clustered"

// MarkClustered marks the directory as that of a cluster's server.
func (d *Dir) MarkClustered() error { return WriteFile(d.Join(ClusteredFile), nil, 0o600) }

// RestoringFile is the file that marks a directory as being restored, and incomplete. No
// server starts on such a directory.
const RestoringFile = "restoring"

// WriteFile replaces a file as a whole: a reader sees the old or the new one.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone when the rename worked
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// File is one small file of a data directory that is read and replaced as a whole.
type File struct{ path string }

// File returns the file with a name.
func (d *Dir) File(name string) File { return File{d.Join(name)} }

// Load returns the content, nil if there is none.
func (f File) Load() ([]byte, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save replaces the content, durably. Only the owner of the file can read it.
func (f File) Save(b []byte) error {
	if err := WriteFile(f.path, b, 0o600); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
