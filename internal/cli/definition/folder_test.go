package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/document"
)

// TestFileName: each name gets a file of its own, also on file systems that ignore case.
func TestFileName(t *testing.T) {
	seen := map[string]string{}
	for name, want := range map[string]string{
		"report": "report", "a.b_c-1": "a.b_c-1", "totals@prod": "totals@prod", "builtin:http": "builtin%3ahttp",
		"con": "%63on", "Con": "%43on~c5f2d1bc", "lpt1.x": "%6cpt1.x", "com10": "com10", "../x": "%2e.%2fx", "Report": "Report~c38372b2", "rEport": "rEport~05ee5880",
	} {
		got := fileName(name)
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if other, twice := seen[strings.ToLower(got)]; twice {
			t.Errorf("%s and %s have one file", name, other)
		}
		seen[strings.ToLower(got)] = name
	}
}

// TestFolder exports to a folder twice, with a definition less the second time.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	read := func(source string) []*document.Document {
		all, err := document.Parse(strings.NewReader(source), document.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	export := func(source string, prune bool) (stale []string, written int) {
		f, err := openFolder(dir, "shop")
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		if err := f.write(read(source)); err != nil {
			t.Fatal(err)
		}
		if stale = f.stale(document.Kinds(), true); prune {
			if err := f.remove(stale); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.finish(); err != nil {
			t.Fatal(err)
		}
		return stale, f.written
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	if stale, written := export("name: a\n---\nname: b\n---\nkind: Calendar\nname: c\n", false); len(stale) > 0 || written != 3 {
		t.Errorf("the first export: %d files, stale %q", written, stale)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "calendar/c.yaml")); err != nil || string(text) != "kind: Calendar\nname: c\n" {
		t.Errorf("calendar/c.yaml: %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "job", "own.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const fewer = "name: a\n---\nkind: Calendar\nname: c\n"
	if stale, written := export(fewer, false); strings.Join(stale, " ") != "job/b.yaml" || written != 0 || !exists("job/b.yaml") {
		t.Errorf("without prune: %d files, stale %q, job/b.yaml exists: %v", written, stale, exists("job/b.yaml"))
	}
	export(fewer, true)
	if exists("job/b.yaml") || !exists("job/own.yaml") || !exists("job/a.yaml") {
		t.Error("prune removes exactly the files that an export wrote and that are gone")
	}
	if stale, _ := export(fewer, true); len(stale) > 0 {
		t.Errorf("stale after prune: %q", stale)
	}
	if _, err := openFolder(dir, "other"); err == nil || !strings.Contains(err.Error(), "holds an export of app shop") {
		t.Errorf("another app: %v", err)
	}
}

// TestFolderWithOtherContents refuses folders that an export could harm.
func TestFolderWithOtherContents(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"other file": {"README.md", "x", "is not empty and holds no export"},
		"empty":      {manifestName, "", "is damaged"},
		"outside":    {manifestName, manifestHead + "\nshop\njob/../../x.yaml\n", "which no export writes"},
		"absolute":   {manifestName, manifestHead + "\nshop\n/etc/x.yaml\n", "which no export writes"},
		"own file":   {manifestName, manifestHead + "\nshop\n.git/x.yaml\n", "which no export writes"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openFolder(dir, "shop"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(dir, "shop")
	if err != nil {
		t.Fatalf("a folder under version control: %v", err)
	}
	f.close()
}
