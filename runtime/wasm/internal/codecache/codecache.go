// Package codecache stores rewritten modules and their machine code in files, so that a
// restart need not make them again. A missing or damaged file counts as absent: the
// engine then makes it again.
package codecache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// A Dir is a directory of files with checksums. Several processes may share it. The zero
// value stores nothing.
type Dir struct{ dir string }

// Open creates a directory, unless it exists, and returns it.
func Open(dir string) (Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Dir{}, fmt.Errorf("code cache: %w", err)
	}
	return Dir{dir}, nil
}

// magic begins each file, and the checksum of the data follows. The text is part of the
// format and does not change with the name of the package.
const magic = "wheelwork shelf 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Get returns the data of a name; ok is false if the file is missing or damaged. A name
// is a file name.
func (s Dir) Get(name string) (data []byte, ok bool) {
	if s.dir == "" {
		return nil, false
	}
	file, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return nil, false
	}
	return decode(file)
}

// Path returns the path of the file of a name.
func (s Dir) Path(name string) string { return filepath.Join(s.dir, name) }

func decode(file []byte) (data []byte, ok bool) {
	body, ok := bytes.CutPrefix(file, []byte(magic))
	if !ok || len(body) < 4 || crc32.Checksum(body[4:], castagnoli) != binary.LittleEndian.Uint32(body) {
		return nil, false
	}
	return body[4:], true
}

// Put stores data under a name. A concurrent reader finds all of it or nothing.
func (s Dir) Put(name string, data []byte) (err error) {
	if s.dir == "" {
		return nil
	}
	temp, err := os.CreateTemp(s.dir, "new-")
	if err != nil {
		return fmt.Errorf("code cache: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("code cache: %w", err)
			_ = os.Remove(temp.Name()) // the evictor removes it later if this fails
		}
	}()
	head := binary.LittleEndian.AppendUint32([]byte(magic), crc32.Checksum(data, castagnoli))
	_, err = temp.Write(head)
	if err == nil {
		_, err = temp.Write(data)
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), filepath.Join(s.dir, name))
}
