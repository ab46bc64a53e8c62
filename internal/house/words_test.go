package house

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackageComments checks that each package says what it owns. The comment that the
// gateway's generator gives to every package does not count.
func TestPackageComments(t *testing.T) {
	says := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() || strings.HasSuffix(s.path, ".pb.gw.go") {
			continue
		}
		says[s.room()] = says[s.room()] || strings.TrimSpace(s.file.Doc.Text()) != ""
	}
	for dir, ok := range says {
		if !ok {
			t.Errorf("%s has no package comment: say in doc.go what it owns", dir)
		}
	}
}

// TestPackageNames refuses package names that collect unrelated code.
func TestPackageNames(t *testing.T) {
	vague := []string{"base", "common", "helper", "helpers", "manager", "managers", "misc", "shared", "type", "types", "util", "utils"}
	for _, s := range sources(t) {
		for _, name := range []string{s.file.Name.Name, path.Base(s.room())} {
			if slices.Contains(vague, strings.TrimSuffix(name, "_test")) {
				t.Errorf("%s: package %s: name it after what it owns", s.path, name)
			}
		}
	}
}

// TestNothingPutOff refuses notes about unfinished work: finish it, or open an issue.
func TestNothingPutOff(t *testing.T) {
	note := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`) // split because the test reads this file too
	for _, s := range sources(t) {
		for _, at := range note.FindAllIndex(s.text, -1) {
			t.Errorf("%s:%d: %s: do it, or open an issue", s.path, lineOf(s.text, at[0]), s.text[at[0]:at[1]])
		}
	}
}

// TestExceptionsHaveReasons checks that each exception from a lint rule says why.
func TestExceptionsHaveReasons(t *testing.T) {
	exception := regexp.MustCompile(`//(nolint|lint:ignore)\S*( // \S| \S+ \S)?`)
	for _, s := range sources(t) {
		for _, at := range exception.FindAllSubmatchIndex(s.text, -1) {
			if at[4] < 0 && s.room() != "internal/house" {
				t.Errorf("%s:%d: %s: say why", s.path, lineOf(s.text, at[0]), s.text[at[0]:at[1]])
			}
		}
	}
}

// TestPureRooms checks the rooms that must be deterministic, now and when a journal is
// replayed: their callers pass in the time.
func TestPureRooms(t *testing.T) {
	pure := []string{"alert/channel", "alert/notification", "alert/rule", "job", "job/expr", "job/naming", "job/route", "job/schedule", "job/schedule/cron", "sched/wheel"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	for _, s := range sources(t) {
		if s.isTest() || !slices.Contains(pure, s.room()) {
			continue
		}
		for _, path := range s.imports() {
			if strings.HasPrefix(path, "math/rand") || path == "crypto/rand" {
				t.Errorf("%s: imports %s: a replay would decide differently", s.path, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clock, sel.Sel.Name) {
				t.Errorf("%s: time.%s: a replay would decide differently; take the time as an argument", s.at(n), sel.Sel.Name)
			}
			return true
		})
	}
}
