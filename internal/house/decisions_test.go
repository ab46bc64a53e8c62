package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// decisionStatus is the line below the title of a decision, with its status and date.
var decisionStatus = regexp.MustCompile(`(?m)^\*\*Status\.\*\* (Accepted|Replaced), (\d{1,2} [A-Z][a-z]+ 20\d\d)\.`)

// TestIndexOfDecisions: docs/adr/README.md lists each decision with its title, status and
// date, in the order of their numbers.
func TestIndexOfDecisions(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "adr")
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d decisions: %v", len(files), err)
	}
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(string(text), "\n")
		number, title, ok := strings.Cut(strings.TrimPrefix(title, "# "), ". ")
		status := decisionStatus.FindStringSubmatch(string(text))
		if !ok || status == nil || strings.TrimLeft(name[:4], "0") != number {
			t.Errorf("%s: want a title \"# NUMBER. TITLE\" and a line \"**Status.** Accepted, DATE.\"", name)
			continue
		}
		rows = append(rows, "| "+number+" | ["+title+"]("+name+") | "+strings.ToLower(status[1])+" | "+status[2]+" |")
	}
	if want := strings.Join(rows, "\n") + "\n"; !strings.HasSuffix(string(index), want) {
		t.Errorf("docs/adr/README.md does not end with these rows:\n%s", want)
	}
}
