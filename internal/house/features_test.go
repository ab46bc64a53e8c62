package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFeaturesHaveTests reads the tables of docs/console-features.md. Each row that says yes or partly names
// tests, which exist in the package before them; a row that says no names none, and says what to do instead.
func TestFeaturesHaveTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "console-features.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string]bool{} // by package
	var counts []int
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		number, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil || !strings.HasPrefix(line, "| ") {
			if strings.HasPrefix(line, "|---") {
				counts = append(counts, 0)
			}
			continue
		}
		counts[len(counts)-1]++
		if number != counts[len(counts)-1] {
			t.Errorf("the row after %d has the number %d", counts[len(counts)-1]-1, number)
		}
		if len(cells) != 5 || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("row %d has not five cells, with the place or the substitute in the fourth: %s", number, line)
			continue
		}
		named := 0
		for _, list := range regexp.MustCompile("`([a-z/]+)`: ([A-Za-z0-9, ]+)").FindAllStringSubmatch(cells[4], -1) {
			if tests[list[1]] == nil {
				tests[list[1]] = testsOf(t, filepath.Join("..", "..", filepath.FromSlash(list[1])))
			}
			for name := range strings.SplitSeq(list[2], ", ") {
				named++
				if !tests[list[1]][strings.TrimSpace(name)] {
					t.Errorf("row %d: %s has no test %s", number, list[1], name)
				}
			}
		}
		switch cells[2] {
		case "yes", "partly":
			if named == 0 {
				t.Errorf("row %d says %s and names no test", number, cells[2])
			}
		case "no":
			if named > 0 {
				t.Errorf("row %d says no and names a test", number)
			}
		default:
			t.Errorf("row %d says %q, want yes, partly or no", number, cells[2])
		}
	}
	if len(counts) != 2 || counts[0] != 60 || counts[1] != 12 {
		t.Errorf("the tables have %v rows, want 60 and 12", counts)
	}
}

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := fs.Glob(os.DirFS(dir), "*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
