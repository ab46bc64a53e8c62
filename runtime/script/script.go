package script

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Section is the name of the custom section that makes a module a script.
const Section = "wheelwork.script"

// Bounds of one script.
const (
	MaxFiles      = 200
	MaxBytes      = 4 << 20 // of all sources together
	maxName       = 200     // bytes of a file's name
	maxSections   = 16
	maxSection    = 6*MaxBytes + 1<<20 // JSON escapes one byte to at most six
	maxSectionTag = 64                 // bytes of a section's name
)

// Script is a handler as source text.
type Script struct {
	Language    string            `json:"language"`    // one of the languages of Interpreters
	Interpreter string            `json:"interpreter"` // "sha256:<hex>" of the interpreter's bytes
	Main        string            `json:"main"`        // name of the file whose functions are the handlers
	Files       map[string]string `json:"files"`       // source texts by name: "main.js", "lib/text.js"
}

// Errors of [Unpack].
var (
	ErrNotScript = errors.New("not a script")      // any other module, or no module
	ErrBad       = errors.New("the script is bad") // a script that is not valid
)

var header = []byte("\x00asm\x01\x00\x00\x00")

// Pack encodes a script as one file. Equal scripts give equal bytes.
func Pack(s Script) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(s) // Marshal sorts the files by name
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrBad, err)
	}
	body := binary.AppendUvarint(nil, uint64(len(Section)))
	body = append(append(body, Section...), text...)
	out := append(bytes.Clone(header), 0)
	out = binary.AppendUvarint(out, uint64(len(body)))
	return append(out, body...), nil
}

// Unpack decodes a file of Pack, to which other custom sections may have been added. It
// returns ErrNotScript for any other module.
func Unpack(code []byte) (Script, error) {
	text, err := section(code)
	if err != nil {
		return Script{}, err
	}
	var s Script
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("%w: its section %s is not the JSON expected: %v", ErrBad, Section, err)
	}
	if d.More() {
		return Script{}, fmt.Errorf("%w: its section %s has more than one JSON value", ErrBad, Section)
	}
	return s, s.check()
}

// section returns the content of the custom section [Section]. It returns an error if the
// module also has sections that are not custom.
func section(code []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(code, header)
	if !ok {
		return nil, ErrNotScript
	}
	var found []byte
	other := false // whether the module has a section that is not custom
	for n := 0; len(rest) > 0; n++ {
		id := rest[0]
		size, k := binary.Uvarint(rest[1:])
		if k <= 0 || size > uint64(len(rest)-1-k) {
			return nil, ErrNotScript // damaged: the parser of modules reports the details
		}
		body := rest[1+k : 1+k+int(size)]
		rest = rest[1+k+int(size):]
		if id != 0 {
			other = true
			continue
		}
		name, text, ok := tag(body)
		if !ok || name != Section {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: it has two sections %s", ErrBad, Section)
		}
		if n >= maxSections || len(text) > maxSection {
			return nil, fmt.Errorf("%w: it is larger than a script may be", ErrBad)
		}
		found = text
	}
	switch {
	case found == nil:
		return nil, ErrNotScript
	case other:
		return nil, fmt.Errorf("%w: it has a section %s and code of its own: a module is one or the other", ErrBad, Section)
	}
	return found, nil
}

// tag splits the content of a custom section into its name and its data.
func tag(body []byte) (name string, text []byte, ok bool) {
	n, k := binary.Uvarint(body)
	if k <= 0 || n > maxSectionTag || n > uint64(len(body)-k) {
		return "", nil, false
	}
	return string(body[k : k+int(n)]), body[k+int(n):], true
}

func (s Script) check() error {
	known, ok := ByDigest(s.Interpreter)
	switch {
	case !ok:
		return fmt.Errorf("%w: its interpreter %.80q is not one that this version can run: pack it again with one of %s", ErrBad, s.Interpreter, names())
	case known.Language != s.Language:
		return fmt.Errorf("%w: it is written in %.40q and its interpreter runs %s", ErrBad, s.Language, known.Language)
	case len(s.Files) > MaxFiles:
		return fmt.Errorf("%w: it has %d files, at most %d are accepted", ErrBad, len(s.Files), MaxFiles)
	}
	total := 0
	for name, text := range s.Files {
		if err := checkName(name); err != nil {
			return err
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: %s is not UTF-8 text", ErrBad, name)
		}
		total += len(text)
	}
	if total > MaxBytes {
		return fmt.Errorf("%w: its sources have %d bytes, at most %d are accepted", ErrBad, total, MaxBytes)
	}
	if _, ok := s.Files[s.Main]; !ok {
		return fmt.Errorf("%w: its main file %.80q is not among its files", ErrBad, s.Main)
	}
	for name := range s.Files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := s.Files[dir]; ok {
				return fmt.Errorf("%w: %s is a file and a folder", ErrBad, dir)
			}
		}
	}
	return nil
}

// checkName returns an error unless name is a canonical relative path with forward
// slashes.
func checkName(name string) error {
	bad := name == "" || len(name) > maxName || !utf8.ValidString(name) || path.IsAbs(name) || path.Clean(name) != name ||
		name == "." || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsAny(name, "\\:\x00") ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f })
	if bad {
		return fmt.Errorf("%w: %.80q is not the name of a file: use a relative path such as lib/text.js", ErrBad, name)
	}
	return nil
}

// names lists the interpreters for display.
func names() string {
	var out []string
	for _, i := range Interpreters() {
		out = append(out, i.Name())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
