package modules

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

var empty = []byte("\x00asm\x01\x00\x00\x00")

func custom(name, body string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(name)))
	b = append(append(b, name...), body...)
	return append(binary.AppendUvarint([]byte{0}, uint64(len(b))), b...)
}

func TestSections(t *testing.T) {
	code := bytes.Join([][]byte{empty, {1, 4, 1, 0x60, 0, 0}, {3, 2, 1, 0}, custom("wheelwork.manifest", `{"handlers":[]}`), {10, 4, 1, 2, 0, 0x0b}, {13, 0}, {99, 1, 7}}, nil)
	all, err := Sections(code)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	end := int64(8)
	for _, s := range all {
		got = append(got, fmt.Sprint(s.Name, " ", s.Bytes))
		if s.Offset != end+2 {
			t.Errorf("%s begins at %d, want %d", s.Name, s.Offset, end+2)
		}
		end = s.Offset + s.Bytes
	}
	if want := "type 4, function 2, wheelwork.manifest 34, code 4, tag 0, unknown (99) 1"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if body, ok := Custom(code, "wheelwork.manifest"); !ok || string(body) != `{"handlers":[]}` {
		t.Errorf("the manifest: %q, %v", body, ok)
	}
	if _, ok := Custom(code, "type"); ok {
		t.Error("a section that is not custom was taken for one")
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "text": []byte("hello, world"), "a component": []byte("\x00asm\x0d\x00\x01\x00"),
		"a head without a size": append(bytes.Clone(empty), 1),
		"a size without bytes":  append(bytes.Clone(empty), 1, 4, 0),
		"a huge size":           append(bytes.Clone(empty), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a name without bytes":  append(bytes.Clone(empty), 0, 1, 5),
		"too many":              append(bytes.Clone(empty), bytes.Repeat([]byte{1, 0}, maxSections+1)...),
	} {
		if got, err := Sections(bad); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if all, err := Sections(append(bytes.Clone(empty), custom(strings.Repeat("n", 5000), "")...)); err != nil || len(all[0].Name) != maxSectionName {
		t.Errorf("a long name: %v, %v", len(all[0].Name), err)
	}
}

func FuzzSections(f *testing.F) {
	f.Add(empty)
	f.Add(append(bytes.Clone(empty), custom("name", "x")...))
	f.Add(append(bytes.Clone(empty), 10, 0x80, 0x80, 0x80, 0x80, 0x00))
	f.Fuzz(func(t *testing.T, code []byte) {
		all, err := Sections(code)
		if err != nil {
			return
		}
		for _, s := range all {
			if s.Offset < 8 || s.Bytes < 0 || s.Offset+s.Bytes > int64(len(code)) {
				t.Errorf("%+v of %d bytes", s, len(code))
			}
			if s.Custom {
				Custom(code, s.Name)
			}
		}
	})
}
