// Package shelf keeps bytes in files, so that they need not be made again.
// Nothing depends on it: what is not there whole is not there.
package shelf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// A Shelf is a directory. Several processes may share it. The zero value keeps
// nothing.
type Shelf struct{ dir string }

// Open returns the shelf of a directory, which it makes.
func Open(dir string) (Shelf, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Shelf{}, fmt.Errorf("shelf: %w", err)
	}
	return Shelf{dir}, nil
}

// magic begins each file; the checksum of what follows comes next.
const magic = "wheelwork shelf 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Get returns what was put under a name; ok is false when it is not there, or
// not as it was put. A name is one of a file.
func (s Shelf) Get(name string) (data []byte, ok bool) {
	if s.dir == "" {
		return nil, false
	}
	file, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return nil, false
	}
	return decode(file)
}

// Path is the file of a name.
func (s Shelf) Path(name string) string { return filepath.Join(s.dir, name) }

func decode(file []byte) (data []byte, ok bool) {
	body, ok := bytes.CutPrefix(file, []byte(magic))
	if !ok || len(body) < 4 || crc32.Checksum(body[4:], castagnoli) != binary.LittleEndian.Uint32(body) {
		return nil, false
	}
	return body[4:], true
}

// Put keeps data under a name. A reader finds it whole or not at all.
func (s Shelf) Put(name string, data []byte) (err error) {
	if s.dir == "" {
		return nil
	}
	temp, err := os.CreateTemp(s.dir, "new-")
	if err != nil {
		return fmt.Errorf("shelf: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("shelf: %w", err)
			_ = os.Remove(temp.Name()) // what is left of it harms nobody
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
