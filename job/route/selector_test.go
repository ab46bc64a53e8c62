package route

import (
	"reflect"
	"strings"
	"testing"
)

func TestSelector(t *testing.T) {
	a, b, empty := map[string]string{"zone": "a"}, map[string]string{"zone": "b"}, map[string]string{"zone": ""}
	for _, c := range []struct {
		text, want string // want is the result of String
		yes, no    []map[string]string
	}{
		{"zone=a", "zone=a", []map[string]string{a}, []map[string]string{b, empty, nil}},
		{"zone==a", "zone=a", []map[string]string{a}, []map[string]string{b, empty, nil}},
		{" zone\t= a ", "zone=a", []map[string]string{a}, []map[string]string{b}},
		{"zone!=a", "zone!=a", []map[string]string{b, empty, nil}, []map[string]string{a}},
		{"zone in (a, c)", "zone in (a, c)", []map[string]string{a}, []map[string]string{b, empty, nil}},
		{"zone in(c,b)", "zone in (c, b)", []map[string]string{b}, []map[string]string{a, nil}},
		{"zone notin (a,c)", "zone notin (a, c)", []map[string]string{b, empty, nil}, []map[string]string{a}},
		{"zone", "zone", []map[string]string{a, b, empty}, []map[string]string{nil, {"zones": "a"}}},
		{"!zone", "!zone", []map[string]string{nil, {"gpu": "a"}}, []map[string]string{a, empty}},
		{"! zone", "!zone", []map[string]string{nil}, []map[string]string{a}},
		{"in", "in", []map[string]string{{"in": "1"}}, []map[string]string{a}},
		{"in in (in)", "in in (in)", []map[string]string{{"in": "in"}}, []map[string]string{{"in": "a"}}},
		{"k8s.io/os=linux:6.1@x+y", "k8s.io/os=linux:6.1@x+y", []map[string]string{{"k8s.io/os": "linux:6.1@x+y"}}, []map[string]string{a}},
	} {
		s, err := ParseSelector(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if s.String() != c.want {
			t.Errorf("%s is written as %s, want %s", c.text, s, c.want)
		}
		for _, l := range c.yes {
			if !s.Matches(l) {
				t.Errorf("%s refuses %v", c.text, l)
			}
		}
		for _, l := range c.no {
			if s.Matches(l) {
				t.Errorf("%s accepts %v", c.text, l)
			}
		}
	}
}

func TestSelectorErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   `at character 1: the key of a label is missing`,
		"=a":                                 `at character 1: the key of a label is missing`,
		"!":                                  `at character 2: the key of a label is missing`,
		"-zone":                              `at character 1: the key of a label begins with a letter or a digit`,
		"zone=":                              `at character 6: a value is missing`,
		"zone==":                             `at character 7: a value is missing`,
		"zone!a":                             `at character 5: an operator is missing: write zone=a, zone!=a, zone in (a, b) or zone notin (a, b)`,
		"zone is a":                          `at character 6: an operator is missing`,
		"zone ina (a)":                       `at character 6: an operator is missing`,
		"zone in a":                          `at character 9: a list in parentheses is missing: write zone in (a, b)`,
		"zone notin ()":                      `at character 13: a value is missing`,
		"zone in (a b)":                      `at character 12: a comma or a parenthesis must follow: write zone in (a, b)`,
		"zone in (a,":                        `at character 12: a value is missing`,
		"zone in (a,,b)":                     `at character 12: a value is missing`,
		"zone in (a":                         `at character 11: a comma or a parenthesis must follow`,
		"zone=a, gpu":                        `at character 7: the condition ends before this: write each condition as an entry of its own`,
		"!zone=a":                            `at character 6: the condition ends before this`,
		"zone=a\n":                           `at character 7: the condition ends before this`,
		"zöne=a":                             `at character 2: an operator is missing`,
		strings.Repeat("k", 129):             `the key of a label has at most 128 bytes`,
		"k=" + strings.Repeat("v", 257):      `a value has at most 256 bytes`,
		"k in (" + strings.Repeat("v,", 600): `the limit is 1024`,
	} {
		if _, err := ParseSelector(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestCheckLabel(t *testing.T) {
	for _, c := range []struct {
		key, value string
		ok         bool
	}{
		{"zone", "a", true},
		{"zone", "", true},
		{"k8s.io/os", "linux:6.1@x+y_z", true},
		{strings.Repeat("k", 128), strings.Repeat("v", 256), true},
		{"", "a", false},
		{"-zone", "a", false},
		{"zo ne", "a", false},
		{"zone", "a b", false},
		{"zone", "a,b", false},
		{"zöne", "a", false},
		{strings.Repeat("k", 129), "a", false},
		{"zone", strings.Repeat("v", 257), false},
	} {
		err := CheckLabel(c.key, c.value)
		if (err == nil) != c.ok {
			t.Errorf("%q=%q: %v", c.key, c.value, err)
		}
		if err == nil && c.value != "" {
			s, err := ParseSelector(c.key + "=" + c.value)
			if err != nil || !s.Matches(map[string]string{c.key: c.value}) {
				t.Errorf("%q=%q is a label, but cannot be asked for: %v", c.key, c.value, err)
			}
		}
	}
}

// FuzzSelector checks that a valid selector has a text that parses to an equal selector,
// and that it only matches labels that hosts can have.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"zone=a", "zone == a", "zone!=a", "zone in (a, b)", "zone notin (a,b,c)", "gpu", "!gpu", "in in (in)", "a/b.c-d_e=f:g@h+i",
		"zone in (", "=", "!", "\xff", "zone=a,gpu",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelector(text)
		if err != nil {
			if !strings.Contains(err.Error(), ": ") {
				t.Fatalf("%q: the error says no place: %v", text, err)
			}
			return
		}
		again, err := ParseSelector(s.String())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%q is written as %q and read as %+v, not %+v: %v", text, s, again, s, err)
		}
		for _, v := range append(s.values, "") {
			if err := CheckLabel(s.key, v); err != nil {
				t.Fatalf("%q asks for what no host can have: %v", text, err)
			}
		}
		labels := map[string]string{s.key: "other-than-all"}
		if len(s.values) > 0 {
			labels[s.key] = s.values[len(s.values)-1]
		}
		want := s.op == opEqual || s.op == opIn || s.op == opThere
		if s.Matches(labels) != want || s.Matches(nil) != (s.op == opUnequal || s.op == opNotIn || s.op == opNotThere) {
			t.Fatalf("%q: with %v %v, without %v", text, labels, s.Matches(labels), s.Matches(nil))
		}
	})
}
