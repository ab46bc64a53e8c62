package scriptkit

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// TestPack packs the sample of each language with a second file, and takes both out again. The SDK
// is packed and not taken out.
func TestPack(t *testing.T) {
	for _, language := range []string{script.JavaScript, script.Python} {
		main, text, err := Sample(language)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "def main(") && !strings.Contains(text, "function main(") || strings.Contains(text, "reference path") {
			t.Errorf("the sample in %s is\n%s", language, text)
		}
		sources := map[string]string{main: text, "lib/other": "x"}
		before := maps.Clone(sources)
		code, err := Pack(language, main, sources)
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := script.Unpack(code); err != nil || len(whole.Files) != 3 {
			t.Errorf("%s: %d files, %v, want the SDK as well", language, len(whole.Files), err)
		}
		s, err := Unpack(code)
		if err != nil || s.Language != language || s.Main != main || !maps.Equal(s.Files, before) || !maps.Equal(sources, before) {
			t.Errorf("%s: taken out: %v, %v", language, s, err)
		}
		if again, err := Pack(s.Language, s.Main, s.Files); err != nil || !bytes.Equal(again, code) {
			t.Errorf("%s: the same sources are other bytes: %v", language, err)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		language, main string
		sources        map[string]string
		want           string
	}{
		"the SDK's name": {script.Python, "wheelwork.py", map[string]string{"wheelwork.py": ""}, "is the name of the SDK"},
		"no language":    {"ruby", "a.rb", map[string]string{"a.rb": ""}, `no interpreter for "ruby"`},
		"no main file":   {script.JavaScript, "a.js", map[string]string{"b.js": ""}, "its main file"},
		"a bad name":     {script.JavaScript, "../a.js", map[string]string{"../a.js": ""}, "is not the name of a file"},
	} {
		if _, err := Pack(c.language, c.main, c.sources); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, _, err := Sample("ruby"); err == nil {
		t.Error("there is a sample in Ruby")
	}
	if _, err := Unpack([]byte("text")); err == nil {
		t.Error("a text was unpacked")
	}
}
