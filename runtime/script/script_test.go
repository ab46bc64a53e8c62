package script

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() Script {
	i, _ := ByLanguage(JavaScript)
	return Script{
		Language: JavaScript, Interpreter: i.Digest, Main: "main.js",
		Files: map[string]string{"main.js": "export default () => '<é>'\n", "lib/a.js": ""},
	}
}

func withSection(code []byte, id byte, name, body string) []byte {
	content := []byte(body)
	if id == 0 {
		content = append(append(binary.AppendUvarint(nil, uint64(len(name))), name...), body...)
	}
	code = append(bytes.Clone(code), id)
	code = binary.AppendUvarint(code, uint64(len(content)))
	return append(code, content...)
}

func TestPackUnpack(t *testing.T) {
	code, err := Pack(sample())
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Pack(sample())
	if !bytes.Equal(code, again) {
		t.Error("packing the same script twice gave other bytes: its digest would not be its own")
	}
	// A manifest is one more custom section.
	got, err := Unpack(withSection(code, 0, "wheelwork.manifest", "{}"))
	if diff := cmp.Diff(sample(), got); diff != "" || err != nil {
		t.Errorf("Unpack: %v (-want +got):\n%s", err, diff)
	}
}

func TestUnpackOfOtherModules(t *testing.T) {
	code, _ := Pack(sample())
	for name, code := range map[string][]byte{
		"nothing":      nil,
		"text":         []byte("#!/usr/bin/env node\n"),
		"empty module": header,
		"another":      withSection(header, 0, "name", "x"),
		"cut off":      code[:len(code)-1],
		"code only":    withSection(header, 1, "", "\x00"),
	} {
		if _, err := Unpack(code); !errors.Is(err, ErrNotScript) {
			t.Errorf("%s: %v, want ErrNotScript", name, err)
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	good, _ := Pack(sample())
	change := func(f func(*Script)) []byte {
		s := sample()
		f(&s)
		return pack(s)
	}
	python, _ := ByLanguage(Python)
	for _, tt := range []struct {
		name string
		code []byte
		want string
	}{
		{"code beside it", withSection(good, 10, "", "\x00"), "code of its own"},
		{"two of them", withSection(good, 0, Section, "{}"), "two sections"},
		{"no JSON", withSection(header, 0, Section, "main.js"), "not the JSON expected"},
		{"more JSON", withSection(header, 0, Section, "{}{}"), "more than one JSON value"},
		{"an unknown word", withSection(header, 0, Section, `{"language":"javascript","mian":"x"}`), "mian"},
		{"an unknown interpreter", change(func(s *Script) { s.Interpreter = "sha256:00" }), "not one that this version can run"},
		{"another language", change(func(s *Script) { s.Interpreter = python.Digest }), "its interpreter runs python"},
		{"no main", change(func(s *Script) { s.Main = "index.js" }), "not among its files"},
		{"no files", change(func(s *Script) { s.Files = nil }), "not among its files"},
		{"a path upwards", change(func(s *Script) { s.Files["../x.js"] = "" }), "not the name of a file"},
		{"an absolute path", change(func(s *Script) { s.Files["/x.js"] = "" }), "not the name of a file"},
		{"a path with two forms", change(func(s *Script) { s.Files["a//x.js"] = "" }), "not the name of a file"},
		{"a device of Windows", change(func(s *Script) { s.Files["c:x.js"] = "" }), "not the name of a file"},
		{"a line break", change(func(s *Script) { s.Files["a\nb.js"] = "" }), "not the name of a file"},
		{"a file that is a folder", change(func(s *Script) { s.Files["lib"] = "" }), "a file and a folder"},
		{"too much text", change(func(s *Script) { s.Files["big.js"] = strings.Repeat("x", MaxBytes) }), "at most"},
		{"too many files", change(func(s *Script) {
			for i := range MaxFiles {
				s.Files[strings.Repeat("f", i+1)[:min(i+1, 150)]+string(rune('a'+i%26))+string(rune('a'+i/26))] = ""
			}
		}), "at most 200"},
	} {
		_, err := Unpack(tt.code)
		if !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

// pack encodes a script without the checks of Pack.
func pack(s Script) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return withSection(header, 0, Section, string(raw))
}

func TestPackRefuses(t *testing.T) {
	s := sample()
	s.Files["main.js"] = "\xff"
	if _, err := Pack(s); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("Pack of bytes that are no text: %v", err)
	}
}

func TestInterpreters(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range Interpreters() {
		if len(i.Digest) != len("sha256:")+64 || i.Size <= 0 || i.Package == "" || i.File == "" || i.License == "" {
			t.Errorf("%s is incomplete: %+v", i.Name(), i)
		}
		if seen[i.Digest] || seen[Ability(i.Digest)] {
			t.Errorf("%s is listed twice", i.Name())
		}
		seen[i.Digest], seen[Ability(i.Digest)] = true, true
		if got, ok := ByDigest(i.Digest); !ok || got != i {
			t.Errorf("ByDigest(%s) = %+v", i.Digest, got)
		}
	}
	if _, ok := ByDigest(""); ok {
		t.Error("there is an interpreter without a digest")
	}
	if _, ok := ByLanguage("cobol"); ok {
		t.Error("there is an interpreter for cobol")
	}
}

// FuzzUnpack checks that Pack encodes every script that Unpack accepts, and that the
// result decodes to the same script.
func FuzzUnpack(f *testing.F) {
	code, _ := Pack(sample())
	f.Add(code)
	f.Add(withSection(code, 0, "wheelwork.manifest", "{}"))
	f.Add(withSection(header, 0, Section, `{"language":"javascript"}`))
	f.Add(header)
	f.Fuzz(func(t *testing.T, code []byte) {
		s, err := Unpack(code)
		if err != nil {
			if !errors.Is(err, ErrNotScript) && !errors.Is(err, ErrBad) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		packed, err := Pack(s)
		if err != nil {
			t.Fatalf("Unpack took what Pack refuses: %v", err)
		}
		again, err := Unpack(packed)
		if diff := cmp.Diff(s, again); diff != "" || err != nil {
			t.Fatalf("%v (-first +second):\n%s", err, diff)
		}
	})
}
