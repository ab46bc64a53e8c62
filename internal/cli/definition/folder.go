package definition

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

const (
	// manifestName is the file of a folder that names the app and the files of its export:
	// the app on the first line after the head, then a path on each line.
	manifestName = ".wheelwork-export"
	manifestHead = "# written by wheelwork export: the app, then its files"
	maxManifest  = 64 << 20 // bytes
)

// folder is a directory that holds an export of one app. It changes only files that it wrote.
type folder struct {
	root    *os.Root
	dir     string
	app     string
	files   map[string]bool // the paths that an export has written, in this one and before
	now     map[string]bool // those of this export
	written int             // files of this export that differed
}

// openFolder opens a directory for the export of an app, and makes it if there is none. It
// refuses one with other contents.
func openFolder(dir, app string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{root: root, dir: dir, app: app, files: map[string]bool{}, now: map[string]bool{}}
	if err := f.load(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) close() { f.root.Close() } //nolint:errcheck // its files are closed

// load reads the manifest, or checks that a folder without one is empty.
func (f *folder) load() error {
	file, err := f.root.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return f.checkEmpty()
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) < 2 || lines[0] != manifestHead || len(text) > maxManifest {
		return command.Fail("failed", "%s: %s is damaged: remove it and the exported files, and export again", f.dir, manifestName)
	}
	if lines[1] != f.app {
		return command.Fail("failed", "%s holds an export of app %s, and this is app %s: choose another folder", f.dir, lines[1], f.app)
	}
	for _, name := range lines[2:] {
		if kindOfPath(name) == "" {
			return command.Fail("failed", "%s: %s names %q, which no export writes: remove the line", f.dir, manifestName, name)
		}
		f.files[name] = true
	}
	return nil
}

// checkEmpty refuses a folder with contents that an export could mix with. Hidden entries,
// such as the one of a version control system, are none.
func (f *folder) checkEmpty() error {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			return command.Fail("failed", "%s is not empty and holds no export: it has %s; choose an empty folder", f.dir, e.Name())
		}
	}
	return nil
}

// kindOfPath returns the kind that a path of an export belongs to, "" if no export writes it.
func kindOfPath(name string) string {
	kind, file := path.Split(name)
	if kind = strings.TrimSuffix(kind, "/"); !slices.Contains(kindNames(), kind) || path.Ext(file) != ".yaml" || strings.HasPrefix(file, ".") || strings.Contains(file, "\\") {
		return ""
	}
	return kind
}

// write writes documents to their files. A file that has the same bytes already stays as it
// is. The manifest names the files first, so that an export that is interrupted can be
// repeated.
func (f *folder) write(all []*document.Document) error {
	for _, d := range all {
		f.now[filePath(d)] = true
		f.files[filePath(d)] = true
	}
	if err := f.finish(); err != nil {
		return err
	}
	for _, d := range all {
		text, err := document.Marshal(d)
		if err != nil {
			return err
		}
		if err := f.replace(filePath(d), text); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file as a whole or not at all.
func (f *folder) replace(name string, text []byte) error {
	old, err := f.root.ReadFile(name)
	if err == nil && bytes.Equal(old, text) {
		return nil
	}
	if kind := path.Dir(name); kind != "." {
		if err := f.root.MkdirAll(kind, 0o755); err != nil {
			return err
		}
	}
	part := path.Join(path.Dir(name), "."+path.Base(name)+".part")
	if err := f.root.WriteFile(part, text, 0o644); err != nil {
		f.root.Remove(part) //nolint:errcheck // the error of the write counts
		return err
	}
	if err := f.root.Rename(part, name); err != nil {
		return err
	}
	if name != manifestName {
		f.written++
	}
	return nil
}

// stale returns the files of earlier exports, of the kinds, whose definitions this export does
// not have. An export of named definitions says nothing about others.
func (f *folder) stale(chosen []*document.Kind, whole bool) (stale []string) {
	if !whole {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		of := func(k *document.Kind) bool { return nameOf(k) == kindOfPath(name) }
		if !f.now[name] && slices.ContainsFunc(chosen, of) {
			stale = append(stale, name)
		}
	}
	return stale
}

func (f *folder) remove(stale []string) error {
	for _, name := range stale {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(f.files, name)
	}
	return nil
}

// finish writes the manifest.
func (f *folder) finish() error {
	lines := append([]string{manifestHead, f.app}, slices.Sorted(maps.Keys(f.files))...)
	return f.replace(manifestName, []byte(strings.Join(lines, "\n")+"\n"))
}

// filePath returns the path of a document's file.
func filePath(d *document.Document) string { return nameOf(d.Kind) + "/" + fileName(d.Name) + ".yaml" }

// fileName returns a name that every file system takes, and keeps apart from other names.
// Bytes other than letters, digits, ".", "_", "-" and "@" become % and their code in
// hexadecimal, as does the first byte of a name that Windows reserves. A name with capital
// letters ends in ~ and its checksum, because some file systems ignore case.
func fileName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case i == 0 && (reserved(name) || c == '.'):
			fmt.Fprintf(&b, "%%%02x", c)
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._-@", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if name != strings.ToLower(name) {
		fmt.Fprintf(&b, "~%08x", crc32.ChecksumIEEE([]byte(name)))
	}
	return b.String()
}

// reserved reports whether Windows takes the name, with any extension, for a device.
func reserved(name string) bool {
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	if slices.Contains([]string{"con", "prn", "aux", "nul"}, stem) {
		return true
	}
	return len(stem) == 4 && (strings.HasPrefix(stem, "com") || strings.HasPrefix(stem, "lpt")) && '1' <= stem[3] && stem[3] <= '9'
}
