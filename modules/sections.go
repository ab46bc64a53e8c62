package modules

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Section is one section of a WebAssembly file.
type Section struct {
	Name   string `json:"name"` // type, import, …; for a custom section, its own name
	Custom bool   `json:"custom,omitempty"`
	Offset int64  `json:"offset"` // where its content begins in the file
	Bytes  int64  `json:"bytes"`
}

// sectionNames are the names of the standard sections, indexed by section id.
var sectionNames = []string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count", "tag"}

// Bounds of the list for display: a file may hold a section for every two bytes.
const (
	maxSections    = 10_000
	maxSectionName = 256
)

var errCutOff = errors.New("the file is cut off, or not a WebAssembly module")

// Sections returns the sections of a module in the order of the file. It reads only the
// section headers and does not validate the module.
func Sections(code []byte) ([]Section, error) {
	if !bytes.HasPrefix(code, []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, errors.New("this is not a WebAssembly module: it does not begin with \\0asm and version 1")
	}
	var all []Section
	for at := 8; at < len(code); {
		id := code[at]
		size, n := binary.Uvarint(code[at+1:])
		if n <= 0 || n > 5 || size > uint64(len(code)-at-1-n) {
			return nil, fmt.Errorf("section at byte %d: %w", at, errCutOff)
		}
		at += 1 + n
		s := Section{Offset: int64(at), Bytes: int64(size)}
		switch {
		case id == 0:
			name, err := customName(code[at : at+int(size)])
			if err != nil {
				return nil, fmt.Errorf("section at byte %d: %w", at, err)
			}
			s.Name, s.Custom = name, true
		case int(id) < len(sectionNames):
			s.Name = sectionNames[id]
		default:
			s.Name = fmt.Sprintf("unknown (%d)", id)
		}
		if all = append(all, s); len(all) > maxSections {
			return nil, fmt.Errorf("it has more than %d sections", maxSections)
		}
		at += int(size)
	}
	return all, nil
}

func customName(body []byte) (string, error) {
	size, n := binary.Uvarint(body)
	if n <= 0 || n > 5 || size > uint64(len(body)-n) {
		return "", errCutOff
	}
	return string(body[n : n+int(min(size, maxSectionName))]), nil
}

// Custom returns the content of the first custom section with the name.
func Custom(code []byte, name string) ([]byte, bool) {
	all, err := Sections(code)
	if err != nil {
		return nil, false
	}
	for _, s := range all {
		if !s.Custom || s.Name != name {
			continue
		}
		body := code[s.Offset : s.Offset+s.Bytes]
		size, n := binary.Uvarint(body)
		return body[n+int(size):], true
	}
	return nil, false
}
