package console

import (
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
)

const lateFeesPage = "/apps/default/scripts/late-fees"

// scriptForm returns the form of the editor of late-fees with another text of its main file.
func scriptForm(do, text string, more ...string) url.Values {
	form := url.Values{
		"do": {do}, "language": {"javascript"}, "name": {"late-fees"}, "version": {"8"}, "base": {"7"}, "seen": {"7"}, "main": {"0"},
		"file": {"main.js", "lib/rate.js"}, "text": {strings.ReplaceAll(text, "\n", "\r\n"), "export const rate = 5;\r\n"},
		"manifest": {"handlers:\r\n  - name: main\r\ncapabilities:\r\n  kv:\r\n    - fees\r\n"},
	}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// edit posts the form of the editor of a script.
func (s *site) edit(t *testing.T, path string, form url.Values) (*http.Response, string) {
	t.Helper()
	resp, body := s.post(t, path, form.Encode())
	if resp.StatusCode != http.StatusSeeOther {
		checkPage(t, body)
	}
	return resp, body
}

// TestCheckScript checks scripts with mistakes of every kind. The page has the field and the line of
// each, and the text as it was typed.
func TestCheckScript(t *testing.T) {
	const bad = "export default function main(ctx) {\n  return foo(;\n}\n"
	for name, c := range map[string]struct {
		text  string
		more  []string
		wants []string
	}{
		"valid":               {lateFees6, nil, []string{">Valid<", "bucket fees write"}},
		"syntax":              {bad, nil, []string{`<a href="#file-0" data-line="2">main.js:2</a>`, "SyntaxError: unexpected token"}},
		"YAML":                {lateFees6, []string{"manifest", "handlers:\n  - name: [\n"}, []string{`<a href="#manifest" data-line=`}},
		"an unknown field":    {lateFees6, []string{"manifest", "capabilites: {}"}, []string{`<a href="#manifest">Manifest</a>`, "capabilites"}},
		"a key that is none":  {lateFees6, []string{"manifest", "{[1]: 2}"}, []string{`<a href="#manifest"`}},
		"an existing version": {lateFees6, []string{"version", "7"}, []string{`<a href="#version">Version</a>`, "is there with other bytes"}},
		"the SDK's name":      {lateFees6, []string{"file", "wheelwork.js"}, []string{"is the name of the SDK"}},
		"a bad name":          {lateFees6, []string{"file", "../a.js"}, []string{"is not the name of a file"}},
		"no language":         {lateFees6, []string{"language", "ruby"}, []string{"there is no interpreter for &#34;ruby&#34;"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, newFake().populate()).signIn(t)
			before := len(s.fake.modules)
			for do, code := range map[string]int{"check": http.StatusOK, "": http.StatusOK, "review": http.StatusUnprocessableEntity, "save": http.StatusUnprocessableEntity} {
				if name == "valid" && (do == "review" || do == "save") {
					continue
				}
				resp, body := s.edit(t, lateFeesPage, scriptForm(do, c.text, c.more...))
				if resp.StatusCode != code {
					t.Errorf("%s: %s, want %d", do, resp.Status, code)
				}
				for _, want := range append(c.wants, strings.ReplaceAll(c.text, "'", "&#39;")+"</textarea>") {
					if !strings.Contains(body, want) {
						t.Errorf("%s: the page does not hold %s:\n%s", do, want, body)
					}
				}
			}
			if len(s.fake.modules) != before {
				t.Error("a check stored a version")
			}
		})
	}
}

// TestScriptFiles adds and removes files. Each step shows the others as they were typed.
func TestScriptFiles(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	if _, body := s.edit(t, lateFeesPage, scriptForm("add", "// typed\n")); !strings.Contains(body, `id="file-2"`) || !strings.Contains(body, "// typed\n</textarea>") {
		t.Errorf("a file was not added:\n%s", body)
	}
	form := scriptForm("remove:0", "// typed\n", "main", "1")
	if _, body := s.edit(t, lateFeesPage, form); strings.Contains(body, "// typed") || !strings.Contains(body, `value="0" checked`) || !strings.Contains(body, `value="lib/rate.js"`) {
		t.Errorf("a file was not removed:\n%s", body)
	}
	for _, do := range []string{"remove:7", "remove:-1", "remove:x"} {
		if resp, body := s.edit(t, lateFeesPage, scriptForm(do, lateFees6)); resp.StatusCode != http.StatusOK || !strings.Contains(body, `id="file-1"`) {
			t.Errorf("%s: %s", do, resp.Status)
		}
	}
	form = scriptForm("check", lateFees6)
	form["file"] = []string{"main.js", "main.js"}
	if _, body := s.edit(t, lateFeesPage, form); !strings.Contains(body, "two files have this name") {
		t.Error("two files have one name")
	}
	form["file"] = []string{"", "main.js"}
	if _, body := s.edit(t, lateFeesPage, form); !strings.Contains(body, "the file has no name") {
		t.Error("a file has no name")
	}
	form["file"], form["text"] = nil, nil
	if _, body := s.edit(t, lateFeesPage, form); !strings.Contains(body, "the script has no file") {
		t.Error("a script without a file")
	}
}

// TestSaveScript saves a script as a new version and moves an alias to it.
func TestSaveScript(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	next := strings.Replace(lateFees7, "6", "7", 1)
	resp, body := s.edit(t, lateFeesPage, scriptForm("review", next, "alias", "prod"))
	for _, want := range []string{"Save late-fees as version 8?", "<ins>  return 7; // &lt;script&gt;", "<del>  return 6; // &lt;script&gt;", "The alias prod moves from 6 to 8.", `name="alias_revision" value="3"`} {
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("the review (%s) does not hold %s:\n%s", resp.Status, want, body)
		}
	}
	if strings.Contains(body, "export const rate") && strings.Contains(body, "<ins>export const rate") || strings.Contains(body, ">capabilities<") {
		t.Error("the review shows files that are the same")
	}
	if _, body = s.edit(t, lateFeesPage, scriptForm("back", next)); !strings.Contains(body, "return 7;") {
		t.Error("the way back loses the text")
	}
	if resp, body = s.edit(t, lateFeesPage, scriptForm("save", next, "alias", "prod", "alias_revision", "2")); resp.StatusCode == http.StatusSeeOther || !strings.Contains(body, "another caller has changed the alias prod") {
		t.Errorf("an alias that has moved: %s", resp.Status)
	}
	if s.fake.code["late-fees@8"] != nil {
		t.Fatal("a refused form stored a version")
	}
	resp, _ = s.edit(t, lateFeesPage, scriptForm("save", next, "alias", "prod", "alias_revision", "3"))
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/modules/late-fees" {
		t.Fatalf("save: %s", resp.Status)
	}
	saved, err := scriptkit.Unpack(s.fake.code["late-fees@8"])
	if err != nil || saved.Files["main.js"] != next || saved.Files["lib/rate.js"] == "" || saved.Main != "main.js" {
		t.Errorf("saved: %v, %v", saved, err)
	}
	if _, a := s.fake.alias("late-fees", "prod"); a.Version != "8" {
		t.Errorf("the alias points at %s", a.Version)
	}
	if _, body = s.do(t, "GET", "/apps/default/modules/late-fees", nil); !strings.Contains(body, "the alias points at the new version: 8") {
		t.Error("the page of the module does not say so")
	}
	if _, body = s.do(t, "GET", lateFeesPage, nil); !strings.Contains(body, "return 7;") || !strings.Contains(body, `name="version" value="9"`) {
		t.Error("the editor does not open the new version")
	}
	form := scriptForm("review", next, "base", "8", "seen", "8", "version", "9")
	if _, body = s.edit(t, lateFeesPage, form); !strings.Contains(body, "there is nothing to save") || strings.Contains(body, `value="save"`) {
		t.Error("the same text can be saved")
	}
}

// TestNewScript saves the sample as a new module.
func TestNewScript(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const page = "/apps/default/scripts"
	form := scriptForm("review", lateFees6, "name", "late-fees", "base", "", "seen", "", "version", "1")
	if resp, body := s.edit(t, page, form); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "the module late-fees exists") {
		t.Errorf("the name of a module: %s", resp.Status)
	}
	form.Set("name", "fees")
	if resp, body := s.edit(t, page, form); resp.StatusCode != http.StatusOK || !strings.Contains(body, "Save fees as version 1?") || !strings.Contains(body, "The first version") || !strings.Contains(body, "<ins>  return 5;</ins>") {
		t.Errorf("review: %s\n%s", resp.Status, body)
	}
	form.Set("do", "save")
	if resp, _ := s.edit(t, page, form); resp.StatusCode != http.StatusSeeOther || s.fake.code["fees@1"] == nil {
		t.Errorf("save: %s", resp.Status)
	}
}

// TestScriptMoved: a version that another caller uploads meanwhile is shown before a text is saved.
func TestScriptMoved(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.addScript("8", strings.Replace(lateFees7, "6", "66", 1), timestamppb.Now()) })
	mine := strings.Replace(lateFees7, "6", "7", 1)
	for _, do := range []string{"review", "save"} {
		resp, body := s.edit(t, lateFeesPage, scriptForm(do, mine))
		if resp.StatusCode != http.StatusConflict {
			t.Fatalf("%s: %s\n%s", do, resp.Status, body)
		}
		for _, want := range []string{"Version 8 was uploaded at", "<ins>  return 66;", "<del>  return 66;", "<ins>  return 7;", `name="seen" value="8"`, `name="base" value="8"`, `name="version" value="9"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page does not hold %s:\n%s", do, want, body)
			}
		}
	}
	if resp, _ := s.edit(t, lateFeesPage, scriptForm("save", mine, "seen", "8", "base", "8", "version", "9")); resp.StatusCode != http.StatusSeeOther || s.fake.code["late-fees@9"] == nil {
		t.Errorf("after the conflict: %s", resp.Status)
	}
}

// TestScriptWithoutInterpreter: the page has the commands that bring the interpreter.
func TestScriptWithoutInterpreter(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.bare = true })
	for _, path := range []string{lateFeesPage, "/apps/default/scripts"} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "wheelwork module fetch-interpreter javascript") || !strings.Contains(body, "wheelwork module push interpreter-javascript@3.6.2 FILE") {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
		checkPage(t, body)
	}
}

func TestScriptIsRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]int{
		"/apps/default/scripts/none":                http.StatusNotFound,
		"/apps/default/scripts/late-fees?version=9": http.StatusNotFound,
		"/apps/default/scripts/totals":              http.StatusBadRequest,
		"/apps/default/scripts?language=ruby":       http.StatusBadRequest,
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
		checkPage(t, body)
	}
	form := scriptForm("review", lateFees6, "alias", "none")
	if resp, _ := s.edit(t, lateFeesPage, form); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an alias that does not exist: %s", resp.Status)
	}
	viewer := newSite(t, newFake().populate())
	viewer.fake.may = []string{"modules.read"}
	viewer.signIn(t)
	for _, path := range []string{lateFeesPage, "/apps/default/scripts"} {
		if resp, _ := viewer.do(t, "GET", path, nil); resp.StatusCode != http.StatusForbidden {
			t.Errorf("a viewer at %s: %s", path, resp.Status)
		}
		if resp, _ := viewer.edit(t, path, scriptForm("save", lateFees6)); resp.StatusCode != http.StatusForbidden || viewer.fake.code["late-fees@8"] != nil {
			t.Errorf("a viewer saves at %s: %s", path, resp.Status)
		}
	}
	for _, path := range []string{"/apps/default/modules", "/apps/default/modules/late-fees"} {
		if _, body := viewer.do(t, "GET", path, nil); strings.Contains(body, "/scripts") {
			t.Errorf("%s offers a viewer the editor", path)
		}
	}
}

// TestScriptsAreBounded: a script that a form could not send back is not opened.
func TestScriptsAreBounded(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	s.fake.change(func() { s.fake.addScript("8", strings.Repeat("// é\n", maxSources/6+1), timestamppb.Now()) })
	if resp, body := s.do(t, "GET", lateFeesPage, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "more than this editor takes") {
		t.Errorf("%s", resp.Status)
	}
	calls := 0
	for _, m := range s.fake.asked {
		if _, ok := m.(*apiv1.ListModulesRequest); ok {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d lists of modules for one page", calls)
	}
}

func TestNextVersion(t *testing.T) {
	taken := map[string]bool{"8": true, "1.2.4": true, "prod": true}
	for version, want := range map[string]string{
		"": "1", "6": "7", "7": "9", "1.2.3": "1.2.5", "1.9": "1.10", "4-rc": "5-rc", "v2": "v3", "blue": "blue-2", "2026.11.27": "2026.11.28", "1.99999999999": "1.991000000000", "2026.11.05": "2026.11.06",
	} {
		if got := nextVersion(version, taken); want != got {
			t.Errorf("after %q comes %q, want %q", version, got, want)
		}
	}
}

// TestTryScript executes a text. The page has the result and the text, and nothing is stored.
func TestTryScript(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	before := len(s.fake.modules)
	for name, c := range map[string]struct {
		text, input string
		wants       []string
	}{
		"output":  {lateFees6, "Ada\r\n<b>", []string{"1\u202f234 ms", ">Succeeded<", "main:Ada\n&lt;b&gt;</pre>", `<span class="l-warn">warn</span><span>careful &lt;script&gt;`, "\nAda\n&lt;b&gt;</textarea>"}},
		"failure": {lateFees6, "", []string{"Failed, can be retried", `<a href="#file-0" data-line="2">main.js:2</a> <span>ReferenceError: none is not defined &lt;script&gt;`}},
		"syntax":  {"(;", "x", []string{`<a href="#file-0" data-line="1">main.js:1</a> <span>SyntaxError`}},
	} {
		resp, body := s.edit(t, lateFeesPage, scriptForm("try", c.text, "handler", " main ", "input", c.input))
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", name, resp.Status)
		}
		for _, want := range append(c.wants, c.text+"</textarea>") {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page does not hold %s:\n%s", name, want, body)
			}
		}
	}
	if _, body := s.edit(t, lateFeesPage, scriptForm("try", lateFees6, "manifest", "[")); !strings.Contains(body, `<a href="#manifest" data-line="1">`) {
		t.Errorf("a manifest with a mistake:\n%s", body)
	}
	if _, body := s.edit(t, lateFeesPage, scriptForm("review", "// new\n"+lateFees7, "handler", "main", "input", "Ada")); !strings.Contains(body, `name="input" value="Ada"`) || !strings.Contains(body, `name="handler" value="main"`) {
		t.Error("the review loses the input")
	}
	if len(s.fake.modules) != before {
		t.Error("a trial stored a version")
	}
	// A deployer uploads scripts and executes none.
	s.fake.may = []string{"modules.read", "modules.write"}
	s2 := newSite(t, s.fake).signIn(t)
	if _, body := s2.do(t, "GET", lateFeesPage, nil); strings.Contains(body, `value="try"`) || !strings.Contains(body, `value="review"`) {
		t.Error("the editor of a deployer offers a trial")
	}
}

// TestFailedAt finds the line of a failure in stacks of both languages.
func TestFailedAt(t *testing.T) {
	files := func(language string, names ...string) scriptText {
		s := scriptText{Language: language}
		for _, name := range names {
			s.Files = append(s.Files, scriptFile{Name: name})
		}
		return s
	}
	js, python := files("javascript", "main.js", "lib/a.js"), files("python", "main.py", "lib/a.py")
	log := func(lines ...string) *apiv1.TryScriptResponse {
		r := &apiv1.TryScriptResponse{Outcome: "retryable"}
		for _, line := range lines {
			r.Log = append(r.Log, &apiv1.TriedLine{Level: "error", Text: line})
		}
		return r
	}
	for name, c := range map[string]struct {
		s    scriptText
		r    *apiv1.TryScriptResponse
		want *scriptProblem
	}{
		"JavaScript":  {js, log("TypeError", "    at f (lib/a.js:7:1)", "    at default (main.js:2:10)"), &scriptProblem{Field: "file-1", Name: "lib/a.js", Line: 7}},
		"the SDK":     {js, log("    at check (wheelwork.js:39:40)", "    at default (main.js:2:10)"), &scriptProblem{Field: "file-0", Name: "main.js", Line: 2}},
		"the top":     {js, &apiv1.TryScriptResponse{Outcome: "permanent", Trace: "    at <anonymous> (main.js:3:7)"}, &scriptProblem{Field: "file-0", Name: "main.js", Line: 3}},
		"Python":      {python, log("Traceback (most recent call last):", `  File "/app/wheelwork.py", line 90, in run`, `  File "/app/main.py", line 4, in main`, `  File "/app/lib/a.py", line 9, in f`, `  File "/usr/lib/json.py", line 1, in g`), &scriptProblem{Field: "file-1", Name: "lib/a.py", Line: 9}},
		"no line":     {js, log("out of memory"), nil},
		"a success":   {js, &apiv1.TryScriptResponse{Outcome: "succeeded", Trace: "(main.js:1:1)"}, nil},
		"a huge line": {js, log("(main.js:99999999999999999999:1)"), &scriptProblem{Field: "file-0", Name: "main.js", Line: math.MaxInt}},
	} {
		got := c.s.failedAt(c.r)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
