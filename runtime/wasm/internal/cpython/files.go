package cpython

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// sourceFS is a read-only file system of a script's files.
type sourceFS map[string]string

// Open opens a file, or a folder that contains files.
func (s sourceFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if text, ok := s[name]; ok {
		return &sourceFile{sourceInfo: sourceInfo{path.Base(name), int64(len(text)), false}, text: strings.NewReader(text)}, nil
	}
	entries := s.entries(name)
	if len(entries) == 0 && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &sourceFolder{sourceInfo: sourceInfo{path.Base(name), 0, true}, rest: entries}, nil
}

// entries lists the direct entries of a folder, by name.
func (s sourceFS) entries(dir string) []fs.DirEntry {
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	found := make(map[string]sourceInfo)
	for name, text := range s {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		first, _, deeper := strings.Cut(rest, "/")
		found[first] = sourceInfo{first, int64(len(text)), deeper}
	}
	var out []fs.DirEntry
	for _, info := range found {
		if info.dir {
			info.size = 0
		}
		out = append(out, fs.FileInfoToDirEntry(info))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// sourceInfo describes a file or folder. All have the same time, because they never change.
type sourceInfo struct {
	name string
	size int64
	dir  bool
}

func (i sourceInfo) Name() string       { return i.name }
func (i sourceInfo) Size() int64        { return i.size }
func (i sourceInfo) IsDir() bool        { return i.dir }
func (i sourceInfo) ModTime() time.Time { return time.Unix(0, 0) }
func (i sourceInfo) Sys() any           { return nil }

func (i sourceInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type sourceFile struct {
	sourceInfo
	text *strings.Reader
}

func (f *sourceFile) Stat() (fs.FileInfo, error)                  { return f.sourceInfo, nil }
func (f *sourceFile) Read(p []byte) (int, error)                  { return f.text.Read(p) }
func (f *sourceFile) Seek(off int64, whence int) (int64, error)   { return f.text.Seek(off, whence) }
func (f *sourceFile) ReadAt(p []byte, off int64) (n int, e error) { return f.text.ReadAt(p, off) }
func (f *sourceFile) Close() error                                { return nil }

type sourceFolder struct {
	sourceInfo
	rest []fs.DirEntry
}

func (f *sourceFolder) Stat() (fs.FileInfo, error) { return f.sourceInfo, nil }
func (f *sourceFolder) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (f *sourceFolder) Close() error               { return nil }

// ReadDir returns the next n entries, or all remaining ones when n is not positive.
func (f *sourceFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(f.rest) {
		if n > 0 && len(f.rest) == 0 {
			return nil, io.EOF
		}
		n = len(f.rest)
	}
	out := f.rest[:n]
	f.rest = f.rest[n:]
	return out, nil
}
