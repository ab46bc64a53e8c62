package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures checks the names of the pictures, and that docs/screenshots has those of the
// documents and no others, as small files.
func TestPictures(t *testing.T) {
	const largest = 80_000
	names := map[string]bool{}
	for _, s := range shots() {
		if names[s.name] || !strings.HasPrefix(s.address, "/") {
			t.Errorf("%s: %s", s.name, s.address)
		}
		names[s.name] = true
		if !s.docs {
			continue
		}
		st, err := os.Stat(filepath.Join("../../docs/screenshots", s.name+".png"))
		if err != nil || st.Size() > largest {
			t.Errorf("%s: %v, want a file of at most %d bytes", s.name, err, largest)
		}
	}
	for name := range inDocs {
		if !names[name] {
			t.Errorf("no picture has the name %s", name)
		}
	}
	files, err := filepath.Glob("../../docs/screenshots/*")
	if err != nil || len(files) != len(inDocs) {
		t.Errorf("%d files for %d pictures of the documents: %v", len(files), len(inDocs), err)
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--list", "--only", "^jobs"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "jobs-400") || strings.Contains(out.String(), "overview") {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, args := range [][]string{{"--only", "("}, {"--only", "^nothing$"}, {"--nothing"}, {"jobs"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
