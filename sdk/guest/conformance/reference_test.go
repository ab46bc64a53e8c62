package conformance

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

// sources returns the text of the SDK of each language, by its column in docs/guest.md.
func sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for language, pattern := range map[string]string{
		"Go": "*.go", "Rust": "rust/*.rs", "Zig": "zig/*.zig", "AssemblyScript": "assemblyscript/*.ts",
		"JavaScript": "js/*", "Python": "python/*.py", "C": "c/*.h",
	} {
		names, err := fs.Glob(guest.Files, pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			text, err := guest.Files.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[language] += string(text)
		}
	}
	return texts
}

// TestReference compares docs/guest.md with the SDKs: each name in it exists in the SDK of
// its column, and each function that handlers can call is in it.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guest.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := sources(t)
	quoted := regexp.MustCompile("`([^`]+)`")
	var columns []string
	named := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
			continue
		case columns == nil:
			columns = strings.Fields(strings.ReplaceAll(line, "|", " "))
			continue
		case strings.HasPrefix(line, "|---"):
			continue
		}
		for i, cell := range cells[1:] {
			for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
				name := match[1]
				if name == "module.yaml" || name == "crypto/rand" {
					continue
				}
				word := strings.TrimSuffix(name[strings.LastIndex(name, ":")+1:], "!")
				if columns[i] == "C" && word[0] >= 'a' && word[0] <= 'z' {
					word = "wheelwork_" + word
				}
				if !regexp.MustCompile(`\b` + word + `\b`).MatchString(texts[columns[i]]) {
					t.Errorf("docs/guest.md names %s of %s, which its SDK does not have", name, columns[i])
				}
				named[columns[i]] = append(named[columns[i]], word)
			}
		}
	}
	entries := []string{"wheelwork_job_next", "wheelwork_job_done"} // of batches, explained in the header
	for language, pattern := range map[string]string{
		"C":      `(?m)^WHEELWORK_IMPORT.* (wheelwork_\w+)\(`,
		"Python": `(?m)^    def ([a-z]\w*)\(self`,
		"Go":     `(?m)^func \((?:b Bucket|Context)\) ([A-Z]\w*)\(`,
		"Rust":   `(?m)^    pub fn (\w+)\(&self`,
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(texts[language], -1)
		if len(found) < 15 {
			t.Errorf("%s: only %d functions match %s", language, len(found), pattern)
		}
		for _, match := range found {
			if name := match[1]; !slices.Contains(named[language], name) && !slices.Contains(entries, name) && !(language == "Python" && slices.Contains([]string{"debug", "info", "warn", "error"}, name)) {
				t.Errorf("docs/guest.md lacks %s of %s", name, language)
			}
		}
	}
}

// TestPythonStub compares the types for editors with the SDK: the same functions, with the
// same parameters.
func TestPythonStub(t *testing.T) {
	function := regexp.MustCompile(`(?m)^(?:class (\w+)|    def ((?:__init__|[a-z]\w*)\([^)]*\)))`)
	functions := func(file string) (list []string) {
		text, err := guest.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		class := ""
		for _, match := range function.FindAllStringSubmatch(string(text), -1) {
			if match[1] != "" {
				class = match[1]
				continue
			}
			name, parameters, _ := strings.Cut(strings.TrimSuffix(match[2], ")"), "(")
			var names []string
			for _, p := range strings.Split(regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(parameters, ""), ",") {
				p, _, _ = strings.Cut(p, "=")
				p, _, _ = strings.Cut(p, ":")
				names = append(names, strings.TrimSpace(p))
			}
			if class != "" && !strings.HasPrefix(class, "_Out") {
				list = append(list, class+"."+name+"("+strings.Join(names, ", ")+")")
			}
		}
		slices.Sort(list)
		return list
	}
	want, got := functions("python/wheelwork.py"), functions("python/wheelwork.pyi")
	for _, f := range want {
		if !slices.Contains(got, f) {
			t.Errorf("wheelwork.pyi lacks %s", f)
		}
	}
	for _, f := range got {
		if !slices.Contains(want, f) {
			t.Errorf("wheelwork.pyi has %s, and wheelwork.py does not", f)
		}
	}
	if len(want) < 30 {
		t.Errorf("only %d functions: %q", len(want), want)
	}
}
