package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"wait", "wait", 0},
		{"wiat", "wait", 1},
		{"wai", "wait", 1},
		{"waait", "wait", 1},
		{"wast", "wait", 1},
		{"get", "dev", 2},
		{"man", "mq", 2},
		{"kitten", "sitting", 3},
		{"ca", "abc", 3},
		{"ab", "ba", 1},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"app", "dev", "job", "list", "mq", "module", "timeout", "wait"}
	for mistyped, want := range map[string]string{
		"wiat": "wait", "jobb": "job", "lst": "list", "modlue": "module", "tiemuot": "timeout", "wait": "wait",
		"get": "", "top": "", "man": "", "": "", "xyzzy": "",
	} {
		if got := Nearest(mistyped, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", mistyped, got, want)
		}
	}
}
