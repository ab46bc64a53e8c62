package reason

import (
	"regexp"
	"strings"
	"testing"
)

// TestEveryCodeHasASentence gives each sentence the values that it names.
func TestEveryCodeHasASentence(t *testing.T) {
	named := regexp.MustCompile(`\{(\w+)\}`)
	for code, text := range Texts() {
		var pairs []string
		want := text
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			value := "value of " + m[1]
			if m[1] == "n" && strings.HasSuffix(code, One) {
				value = "1"
			}
			pairs = append(pairs, m[1], value)
			want = strings.ReplaceAll(want, m[0], value)
		}
		base, one := strings.CutSuffix(code, One)
		if one {
			pairs = append(pairs, "n", "1")
			if Texts()[base] == "" {
				t.Errorf("%s has no sentence for other numbers", base)
			}
		}
		r := New(base, pairs...)
		if got := r.Text(); got != want || got == "" {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
		if m := r.Message(); m.Code != base || len(m.Values) != len(r.Values) {
			t.Errorf("%s: the message is %v", code, m)
		}
	}
	if len(Codes()) < 40 || strings.HasSuffix(Codes()[0], One) {
		t.Errorf("the codes are %q", Codes())
	}
}

func TestNoReason(t *testing.T) {
	var none Reason
	if !none.None() || none.Text() != "" || none.Message() != nil || New(Ended).None() {
		t.Errorf("no reason: %v %q %v", none.None(), none.Text(), none.Message())
	}
}

// TestSentence has texts and values that do not fit, as between versions.
func TestSentence(t *testing.T) {
	texts := map[string]string{"plain": "a text", "two": "{n} of {all}", "two.one": "one of {all}", "open": "an {open", "same": "{a} and {a}"}
	text := func(key string) (string, bool) { s, ok := texts[key]; return s, ok }
	for _, tt := range []struct {
		code   string
		values map[string]string
		want   string // "": there is none
	}{
		{"plain", nil, "a text"},
		{"plain", map[string]string{"n": "1", "more": "x"}, "a text"},
		{"two", map[string]string{"n": "2", "all": "3"}, "2 of 3"},
		{"two", map[string]string{"n": "1", "all": "3"}, "one of 3"},
		{"two", map[string]string{"n": "11", "all": "{n}"}, "11 of {n}"}, // a value is no text
		{"same", map[string]string{"a": ""}, " and "},
		{"two", map[string]string{"n": "2"}, ""},
		{"open", map[string]string{"open": "x"}, ""},
		{"unknown", nil, ""},
		{"", nil, ""},
	} {
		got, ok := Sentence(text, tt.code, tt.values)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s %v: %q, %v; want %q", tt.code, tt.values, got, ok, tt.want)
		}
	}
}
