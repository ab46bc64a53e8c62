package house

import (
	"flag"
	"fmt"
	"go/doc"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/rooms.md")

// TestRoomsDocument: docs/rooms.md is the table of rooms, with the first sentence of each
// package comment. `go test ./internal/house -run TestRoomsDocument -update` writes it.
func TestRoomsDocument(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "rooms.md")
	want := roomsDocument(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || string(have) != want {
		t.Errorf("docs/rooms.md is not what the table of rooms says (%v): go test ./internal/house -run TestRoomsDocument -update", err)
	}
}

func roomsDocument(t *testing.T) string {
	t.Helper()
	owns := map[string]string{}
	for _, s := range sources(t) {
		if text := new(doc.Package).Synopsis(s.file.Doc.Text()); text != "" && !s.isTest() && !strings.HasSuffix(s.path, ".pb.gw.go") {
			owns[s.room()] = text
		}
	}
	var b strings.Builder
	b.WriteString(`# Rooms

Each package of this module, with the packages of this module that it may import. Dependencies point one way. A test in ` + "`internal/house`" + ` holds the table and says which rule an
import breaks; it also writes this page from the package comments.

| room | what it is | may import | because |
|---|---|---|---|
`)
	sorted := slices.SortedFunc(slices.Values(rooms), func(a, b room) int { return strings.Compare(a.dir, b.dir) })
	for _, r := range slices.CompactFunc(sorted, func(a, b room) bool { return a.dir == b.dir }) {
		may := strings.Join(r.may, ", ")
		switch {
		case slices.Equal(r.may, everything):
			may = "all"
		case len(r.may) == 0:
			may = "none"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.dir, owns[r.dir], may, r.why)
	}
	return b.String()
}

// codeReference is a function that a document names by its file.
var codeReference = regexp.MustCompile("`([a-z0-9_/]+\\.go)(?::([A-Za-z0-9_]+))?`")

// TestArchitectureNamesCode: the files and functions that ARCHITECTURE.md names exist.
func TestArchitectureNamesCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1400 {
		t.Errorf("ARCHITECTURE.md has %d words, more than two pages of 700", n)
	}
	found := codeReference.FindAllStringSubmatch(string(text), -1)
	if len(found) < 20 {
		t.Errorf("ARCHITECTURE.md names %d places in the code", len(found))
	}
	for _, ref := range found {
		code, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(ref[1])))
		if err != nil {
			t.Errorf("ARCHITECTURE.md: %v", err)
			continue
		}
		if ref[2] != "" && !regexp.MustCompile(`(?m)^func (\([^)]*\) )?`+ref[2]+`[\[(]`).Match(code) {
			t.Errorf("ARCHITECTURE.md: there is no function %s in %s", ref[2], ref[1])
		}
	}
}
