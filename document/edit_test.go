package document

import (
	"strings"
	"testing"
)

const edited = `# The totals of the day.
name: totals # as in the ledger
handler: {module: totals@1}
schedule:
  # after midnight
  cron: "30 2 * * *"
  zone: Europe/Berlin
labels:
  team: money
retry: {max: 3, first: 5s}
`

// TestEditFields changes fields of a text. All else stays, comments too.
func TestEditFields(t *testing.T) {
	kind, err := Find("Job")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		do   func(*Editor)
		want string
	}{
		"nothing":         {"name:   totals\n\n\npaused: no\n", func(e *Editor) { e.Set("name", "totals") }, "name:   totals\n\n\npaused: no\n"},
		"a value":         {edited, func(e *Editor) { e.Set("schedule.cron", "0 3 * * *") }, strings.Replace(edited, `"30 2 * * *"`, "0 3 * * *", 1)},
		"a field":         {"name: a\n", func(e *Editor) { e.Set("timeout", "10m") }, "name: a\ntimeout: 10m\n"},
		"an object":       {"name: a\n", func(e *Editor) { e.Set("retry.max", "3"); e.Set("retry.first", "5s") }, "name: a\nretry:\n  max: 3\n  first: 5s\n"},
		"in braces":       {"name: a\nretry: {max: 3}\n", func(e *Editor) { e.Set("retry.max", "4"); e.Set("retry.first", "1s") }, "name: a\nretry: {max: 4, first: 1s}\n"},
		"removed":         {edited, func(e *Editor) { e.Set("retry.max", ""); e.Set("retry.first", "") }, strings.Replace(edited, "retry: {max: 3, first: 5s}\n", "", 1)},
		"text of digits":  {"name: a\n", func(e *Editor) { e.Set("input", "17") }, "name: a\ninput: \"17\"\n"},
		"text of lines":   {"name: a\n", func(e *Editor) { e.Set("input", "a\nb: c\n") }, "name: a\ninput: |\n  a\n  b: c\n"},
		"other spelling":  {"name: a\nschedule: {every: 1m, maxRuns: 3}\n", func(e *Editor) { e.Set("schedule.max_runs", "4") }, "name: a\nschedule: {every: 1m, maxRuns: 4}\n"},
		"empty text":      {"", func(e *Editor) { e.Set("name", "a") }, "name: a\n"},
		"a list stays":    {"name: a\nhandler: {module: m@1, args: [a]}\n", func(e *Editor) { e.Set("handler.args", "b") }, "name: a\nhandler: {module: m@1, args: [a]}\n"},
		"anchors stay":    {"name: &n a\nowner: *n\n", func(e *Editor) { e.Set("name", "b"); e.Set("owner", "c") }, "name: &n a\nowner: *n\n"},
		"a wrong number":  {"name: a\n", func(e *Editor) { e.Set("retry.max", "{x: [") }, "name: a\nretry:\n  max: '{x: ['\n"},
		"a null object":   {"name: a\nretry:\n", func(e *Editor) { e.Set("retry.max", "1") }, "name: a\nretry:\n  max: 1\n"},
		"the whole field": {edited, func(e *Editor) { e.Remove("schedule") }, edited[:strings.Index(edited, "schedule:")] + edited[strings.Index(edited, "labels:"):]},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Edit(kind, c.text)
			if err != nil {
				t.Fatal(err)
			}
			c.do(e)
			if got, err := e.Text(); err != nil || got != c.want {
				t.Errorf("error %v\n got %q\nwant %q", err, got, c.want)
			}
		})
	}
	for _, text := range []string{"- name: a\n", "name: a\n---\nname: b\n", "a: [", "text"} {
		if _, err := Edit(kind, text); err == nil {
			t.Errorf("%q has a form", text)
		}
	}
}

// FuzzEdit sets a field of any text. The changed text has the value, and reads as the same text
// again.
func FuzzEdit(f *testing.F) {
	f.Add(edited, "retry.max", "7")
	f.Add("name: a\nretry: *x\n", "retry.max", "7")
	f.Add("{\"name\": \"a\"}", "input", "- a\n b")
	kind, err := Find("Job")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, path, value string) {
		if kind.Field(path) == nil {
			path = "input"
		}
		e, err := Edit(kind, text)
		if err != nil {
			return
		}
		value = strings.ToValidUTF8(value, "\ufffd")
		if old, ok := e.Get(path); !ok || old == value {
			return
		}
		e.Set(path, value)
		changed, err := e.Text()
		if err != nil {
			return // the text has what package yaml does not write
		}
		again, err := Edit(kind, changed)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, changed, err)
		}
		if got, ok := again.Get(path); !ok || got != value && value == strings.ToValidUTF8(strings.TrimSpace(value), "") && !strings.ContainsAny(value, "\r\x00\u0085\u2028\u2029\ufeff") {
			t.Errorf("%q became %q: %s is %q %t, want %q", text, changed, path, got, ok, value)
		}
	})
}
