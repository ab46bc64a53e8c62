package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
)

const full = `{
  "abi": "wheelwork_v1.1", "kind": "reactor",
  "handlers": [{"name": "main", "input_schema": {"type":"object"}, "output_schema": true, "timeout_ms": 30000, "memory_mib": 64, "fuel": 5, "idempotent": true, "batch": true}, {"name": "other"}],
  "capabilities": {
    "http": ["API.example.com", {"host": "*.example.org", "methods": ["POST"], "paths": ["/v1/"], "private": true}],
    "kv": ["totals", {"name": "rates"}],
    "secrets": ["API_KEY"], "enqueue": ["settle", "other/x", "*"],
    "fs": [{"mount": "/tmp", "write": true, "bytes": 1048576}, {"mount": "/data", "dir": "shared"}]
  },
  "reuse": "fresh", "optional": ["map"], "config_schema": {}
}`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := Manifest{
		ABI: "wheelwork_v1.1", Kind: "reactor",
		Handlers: []Handler{
			{Name: "main", InputSchema: []byte(`{"type":"object"}`), OutputSchema: []byte("true"), TimeoutMs: 30000, MemoryMiB: 64, Fuel: 5, Idempotent: true, Batch: true},
			{Name: "other"},
		},
		Capabilities: runtime.Grants{
			HTTP: []runtime.HTTPGrant{{Host: "api.example.com"}, {Host: "*.example.org", Methods: []string{"POST"}, Paths: []string{"/v1/"}, Private: true}},
			KV:   []runtime.Bucket{{Name: "totals", Write: true}, {Name: "rates"}}, Secrets: []string{"API_KEY"}, Enqueue: []string{"settle", "other/x", "*"},
			Files: []runtime.FileGrant{{Mount: "/tmp", Write: true, Bytes: 1 << 20}, {Mount: "/data", Dir: "shared"}},
		},
		Reuse: ReuseFresh, Optional: []string{"map"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	again, err := Grants(Encode(got.Capabilities))
	if diff := cmp.Diff(got.Capabilities, again); diff != "" || err != nil {
		t.Errorf("grants written and read (-want +got), %v:\n%s", err, diff)
	}
	if m, err := Parse([]byte(`{}`)); err != nil || !cmp.Equal(m, Manifest{}) {
		t.Errorf("an empty manifest: %+v, %v", m, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                               "not the JSON",
		`[]`:                             "not the JSON",
		`{} {}`:                          "text after the JSON value",
		`{"handler":[]}`:                 `unknown field "handler"`,
		`{"handlers":[]}`:                "names 0 handlers",
		`{"handlers":[{"name":""}]}`:     "empty, too long",
		`{"handlers":[{"name":"a\nb"}]}`: "not printable",
		`{"handlers":[{"name":"a"},{"name":"a"}]}`:                     "listed twice",
		`{"handlers":[{"name":"a","timeout_ms":-1}]}`:                  "timeout_ms",
		`{"handlers":[{"name":"a","memory_mib":5000}]}`:                "memory_mib",
		`{"handlers":[{"name":"a","fuel":-1}]}`:                        "fuel",
		`{"handlers":[{"name":"a","input_schema":7}]}`:                 "schema",
		`{"handlers":[{"name":"a","colour":7}]}`:                       "unknown field",
		`{"abi":"wheelwork_v2.0"}`:                                     "want wheelwork_v1.0",
		`{"abi":"wheelwork_v1.01"}`:                                    "want wheelwork_v1.0",
		`{"abi":"wheelwork_v1."}`:                                      "want wheelwork_v1.0",
		`{"kind":"plugin"}`:                                            "want command or reactor",
		`{"reuse":"pooled"}`:                                           "want reset, fresh or shared",
		`{"optional":["a","a"]}`:                                       "listed twice",
		`{"capabilities":{"https":[]}}`:                                "unknown field",
		`{"capabilities":{"http":["https://a.example"]}}`:              "without scheme",
		`{"capabilities":{"http":["a.example/x"]}}`:                    "without scheme and path",
		`{"capabilities":{"http":["*"]}}`:                              "without scheme",
		`{"capabilities":{"http":["a.*.example"]}}`:                    "without scheme",
		`{"capabilities":{"http":["u@a.example"]}}`:                    "without scheme",
		`{"capabilities":{"http":["a.example:"]}}`:                     "without scheme",
		`{"capabilities":{"http":["a.example:0"]}}`:                    "port",
		`{"capabilities":{"http":["münchen.example"]}}`:                "without scheme",
		`{"capabilities":{"http":[""]}}`:                               "without scheme",
		`{"capabilities":{"http":[{"host":"a","ports":[1]}]}}`:         "unknown field",
		`{"capabilities":{"http":[{"host":"a","methods":["get"]}]}}`:   "in capitals",
		`{"capabilities":{"http":[{"host":"a","paths":["v1"]}]}}`:      "plain prefix",
		`{"capabilities":{"http":[{"host":"a","paths":["/a/../b"]}]}}`: "plain prefix",
		`{"capabilities":{"http":[{"host":"a","paths":["/a?b"]}]}}`:    "plain prefix",
		`{"capabilities":{"kv":["a",{"name":"a"}]}}`:                   "listed twice",
		`{"capabilities":{"kv":[{"name":"a","rw":true}]}}`:             "unknown field",
		`{"capabilities":{"secrets":[""]}}`:                            "secrets",
		`{"capabilities":{"enqueue":["a/b/c"]}}`:                       "enqueue",
		`{"capabilities":{"enqueue":["a/*"]}}`:                         "enqueue",
		`{"capabilities":{"enqueue":["/a"]}}`:                          "enqueue",
		`{"capabilities":{"fs":[{"mount":""}]}}`:                       "such as /tmp",
		`{"capabilities":{"fs":[{"mount":".."}]}}`:                     "without ..",
		`{"capabilities":{"fs":[{"mount":"../a"}]}}`:                   "without ..",
		`{"capabilities":{"fs":[{"mount":"./a"}]}}`:                    "such as /tmp",
		`{"capabilities":{"fs":[{"mount":"/a/"}]}}`:                    "without a slash",
		`{"capabilities":{"fs":[{"mount":"//"}]}}`:                     "such as /tmp",
		`{"capabilities":{"fs":[{"mount":"/a/../b"}]}}`:                "without ..",
		`{"capabilities":{"fs":[{"mount":"/"},{"mount":"."}]}}`:        "the same directory",
		`{"capabilities":{"fs":[{"mount":"a"},{"mount":"/a"}]}}`:       "the same directory",
		`{"capabilities":{"fs":[{"mount":"a"},{"mount":"/a/b"}]}}`:     "in the other",
		`{"capabilities":{"fs":[{"mount":"/a"},{"mount":"/a/b"}]}}`:    "in the other",
		`{"capabilities":{"fs":[{"mount":"/a","dir":"../etc"}]}}`:      "not a path",
		`{"capabilities":{"fs":[{"mount":"/a","bytes":-1}]}}`:          "bytes",
		`{"kind":"` + strings.Repeat("x", MaxBytes) + `"}`:             "at most",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q in it", text, err, want)
		}
	}
}

func TestMounts(t *testing.T) {
	for _, text := range []string{
		`[{"mount":"/"}]`, `[{"mount":"."}]`, `[{"mount":"data/in"},{"mount":".hidden"},{"mount":"hidden"}]`, `[{"mount":"/"},{"mount":"/tmp"},{"mount":"in"}]`,
	} {
		if _, err := Parse([]byte(`{"capabilities":{"fs":` + text + `}}`)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse checks the invariants of every manifest that Parse accepts.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"capabilities":{"http":["[::1]:80"],"enqueue":["*"]}}`))
	f.Add([]byte(`{"handlers":[{"name":"a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Grants(Encode(m.Capabilities))
		if err != nil || string(Encode(again)) != string(Encode(m.Capabilities)) {
			t.Errorf("%q: written and read again: %v", text, err)
		}
		if err := Check(m.Capabilities); err != nil {
			t.Errorf("%q: what was read is not valid: %v", text, err)
		}
	})
}
