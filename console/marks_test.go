package console

import (
	"strings"
	"testing"
)

func TestMarkInvisible(t *testing.T) {
	for page, want := range map[string]string{
		"<p>plain</p>": "<p>plain</p>",
		"<title>a\u202eb</title><p title=\"\u202e>\">c\u202ed</p>": "<title>a[RLO]b</title><p title=\"\u202e>\">c<bdi class=\"ctl\" data-mark=\"RLO\">\u202e</bdi>d</p>",
		"<textarea rows=\"3\">a\x1bb</textarea>\x1b":               "<textarea rows=\"3\">a\x1bb</textarea><bdi class=\"ctl\" data-mark=\"ESC\">\u241b</bdi>",
		"\u202e<":           "<bdi class=\"ctl\" data-mark=\"RLO\">\u202e</bdi><",
		"<b>👩\u200d💻\t</b>": "<b>👩\u200d💻\t</b>",
	} {
		if got := string(markInvisible([]byte(page))); got != want {
			t.Errorf("%q becomes %q, want %q", page, got, want)
		}
	}
}

// FuzzMarkInvisible checks that the labels add nothing but elements: without them the page
// has its characters, and no character without a label remains.
func FuzzMarkInvisible(f *testing.F) {
	f.Add("<p class=\"a\">x\u202ey</p><title>\x1b</title>")
	f.Add("<a href='>\u202e'>\xff\u2066")
	f.Fuzz(func(t *testing.T, page string) {
		got := string(markInvisible([]byte(page)))
		if strings.Count(got, "<bdi class=\"ctl\"")-strings.Count(page, "<bdi class=\"ctl\"") != strings.Count(got, "</bdi>")-strings.Count(page, "</bdi>") {
			t.Fatalf("%q becomes %q", page, got)
		}
		if len(got) < len(page) {
			t.Fatalf("%q loses bytes: %q", page, got)
		}
	})
}
