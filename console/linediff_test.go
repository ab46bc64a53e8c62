package console

import (
	"fmt"
	"strings"
	"testing"
)

func drawn(c textChanges) string {
	var b strings.Builder
	for _, line := range c.Lines {
		fmt.Fprintf(&b, "%s%s|", map[string]string{"del": "-", "ins": "+", "same": " ", "gap": "@"}[line.Kind], line.Text)
	}
	return b.String()
}

func TestCompareTexts(t *testing.T) {
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintln(&b, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ old, next, want string }{
		"replaced":      {"a\nb\nc\n", "a\nx\nc\n", " a|-b|+x| c|"},
		"added":         {"a\nc\n", "a\nb\nc\n", " a|+b| c|"},
		"removed":       {"a\nb\n", "b\n", "-a| b|"},
		"from nothing":  {"", "a\n\n", "+a|+|"},
		"to nothing":    {"a", "", "-a|"},
		"moved":         {"a\nb\nc\n", "c\na\nb\n", "+c| a| b|-c|"},
		"far apart":     {numbers(20), strings.Replace(numbers(20), "10\n", "x\n", 1), "@| 7| 8| 9|-10|+x| 11| 12| 13|@|"},
		"no line break": {"a\nb", "a\nb\nc", " a| b|+c|"},
	} {
		all := compareTexts(map[string]string{"f": c.old, "same": "x"}, map[string]string{"f": c.next, "same": "x"})
		if len(all) != 1 || all[0].File != "f" || drawn(all[0]) != c.want {
			t.Errorf("%s: %v, want %s", name, all, c.want)
		}
	}
	all := compareTexts(map[string]string{"b": "1"}, map[string]string{"a": ""})
	if len(all) != 2 || all[0].File != "a" || drawn(all[1]) != "-1|" {
		t.Errorf("an added empty file and a removed one: %v", all)
	}
	// Two long texts without a common line cost no table of their product.
	odd, even := strings.Repeat("1\n", 5000), strings.Repeat("2\n", 5000)
	if all := compareTexts(map[string]string{"f": odd}, map[string]string{"f": even}); !all[0].Cut || len(all[0].Lines) != maxDiff {
		t.Errorf("long texts: %d lines", len(all[0].Lines))
	}
}
