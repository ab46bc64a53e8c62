package command

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func TestYAMLError(t *testing.T) {
	type inner struct {
		Output string `yaml:"output,omitempty"`
	}
	type document struct {
		Name    string
		Cases   []inner
		Grace   time.Duration
		Number  int
		Env     map[string]string
		Private bool
	}
	for source, want := range map[string]string{
		"name: a\ncases:\n- outptu: x\n": "line 3: there is no field outptu: did you mean output?",
		"xyzzy: 1\n":                     "line 1: there is no field xyzzy here",
		"name: [a]\n":                    "line 1: want a text, found a list",
		"cases: a\n":                     "line 1: want a list, found a text",
		"cases: [a]\n":                   "line 1: want fields, found a text",
		"grace: soon\n":                  "line 1: want a duration as 30s, found a text",
		"number: many\n":                 "line 1: want a whole number, found a text",
		"env: [a]\n":                     "line 1: want fields, found a list",
		"private: maybe\n":               "line 1: want true or false, found a text",
		"name: a\nname: b\n":             "line 2: mapping key \"name\" already defined at line 1",
		"xyzzy: 1\nnumber: a\n":          "line 1: there is no field xyzzy here; line 2: want a whole number, found a text",
	} {
		d := yaml.NewDecoder(strings.NewReader(source))
		d.KnownFields(true)
		err := d.Decode(&document{})
		if err == nil {
			t.Errorf("%q: no error", source)
			continue
		}
		if got := YAMLError(err, document{}).Error(); got != want {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
}
