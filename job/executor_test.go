package job

import (
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestParseExecutor(t *testing.T) {
	for _, tt := range []struct{ in, full, needs string }{
		{"native:settle", "native:settle", "native:settle"},
		{"native:a.b-c_1", "native:a.b-c_1", "native:a.b-c_1"},
		{"plugin:ledger/settle", "plugin:ledger/settle", "plugin:ledger"},
		{"plugin:ledger", "plugin:ledger/main", "plugin:ledger"},
		{"builtin:http", "builtin:http", "builtin:http"},
		{"builtin:exec", "builtin:exec", "builtin:exec"},
	} {
		e, err := ParseExecutor(tt.in)
		if err != nil || e.String() != tt.full || e.Needs() != tt.needs {
			t.Errorf("%s: %+v, %v: want %s, which needs %s", tt.in, e, err, tt.full, tt.needs)
		}
		if again, err := ParseExecutor(e.String()); err != nil || again != e {
			t.Errorf("%s: its full form reads as %+v, %v", tt.in, again, err)
		}
	}
	for in, want := range map[string]string{
		"": "in no module", "settle": "in no module", ":x": "in no module", "wasm:x": "in no module", "Native:x": "in no module",
		"native:": "is missing", "native:a/b": "is not a name", "native:a:b": "is not a name", "native: a": "is not a name",
		"native:" + strings.Repeat("a", 129): "is not a name",
		"plugin:":                            "is missing", "plugin:a/": "is missing", "plugin:/a": "is missing", "plugin:a/b/c": "is not a name",
		"builtin:": "not built in", "builtin:sql": "builtin:exec and builtin:http",
	} {
		if e, err := ParseExecutor(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v: want %q in the error", in, e, err, want)
		}
	}
}

func FuzzParseExecutor(f *testing.F) {
	for _, s := range []string{"native:x", "plugin:x/y", "plugin:x", "builtin:http", "plugin:/", "native:x:y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseExecutor(s)
		if err != nil {
			return
		}
		again, err := ParseExecutor(e.String())
		if err != nil || again != e {
			t.Fatalf("%q is %+v, and written out in full %+v, %v", s, e, again, err)
		}
		if !IsExecutor(e.Needs()) || needsOf(&apiv1.Job{Handler: &apiv1.Handler{Name: s}}) != e.Needs() {
			t.Fatalf("%q needs %q", s, e.Needs())
		}
	})
}

func TestHandlerInNoModule(t *testing.T) {
	d := &apiv1.Job{Name: "j", Handler: &apiv1.Handler{Name: "plugin:ledger"}}
	if err := Validate(d); err != nil {
		t.Fatal(err)
	}
	if d.Handler.Name != "plugin:ledger/main" || d.Handler.Module != "" {
		t.Errorf("handler: %v", d.Handler)
	}
	if needs := needsOf(d); needs != "plugin:ledger" {
		t.Errorf("needs %q", needs)
	}
	for _, tt := range []struct{ module, name, want string }{
		{"", "", "handler.module is missing"},
		{"", "settle", "handler.module is missing"},
		{"", "native:", "handler.name: the name in native:NAME is missing"},
		{"m", "native:x", "handler.module"},
	} {
		err := Validate(&apiv1.Job{Name: "j", Handler: &apiv1.Handler{Module: tt.module, Name: tt.name}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	// A handler in a module may have any name.
	m := &apiv1.Job{Name: "j", Handler: &apiv1.Handler{Module: "m@1", Name: "native:x"}}
	if err := Validate(m); err != nil || needsOf(m) != "" {
		t.Errorf("an entry of a module: %v, needs %q", err, needsOf(m))
	}
}

func TestAbilities(t *testing.T) {
	for _, tt := range []struct {
		abi   []string
		needs string
		has   bool
	}{
		{nil, "", true},
		{nil, "native:a", false},
		{[]string{"wasi-p1", "wheelwork_v1.0"}, "", true},
		{[]string{"wasi-p1"}, "native:a", false},
		{[]string{"native:a"}, "", false},
		{[]string{"native:a", "native:b"}, "native:b", true},
		{[]string{"native:a"}, "native:ab", false},
		{[]string{"native:ab"}, "native:a", false},
		{[]string{"wasi-p1", "plugin:p"}, "plugin:p", true},
		{[]string{"wasi-p1", "plugin:p"}, "", true},
		{[]string{":"}, "", false},
		{[]string{"plugin:p@pay", "plugin:p@shop"}, "plugin:p", true},
		{[]string{"plugin:p@pay"}, "plugin:p", false},
		{[]string{"plugin:p@shop"}, "", false},
		{[]string{"wasi-p1", "plugin:p@pay"}, "", true},
		{[]string{"builtin:exec", "builtin:exec/dump@shop"}, "builtin:exec/dump", true},
		{[]string{"builtin:exec", "builtin:exec/dump@shop"}, "builtin:exec/other", false},
	} {
		if got := NewAbilities(tt.abi).Has(tt.needs, "shop"); got != tt.has {
			t.Errorf("%q has %q: %v", tt.abi, tt.needs, got)
		}
	}
	if (Abilities{}).Has("", "shop") {
		t.Error("a host that has not joined has abilities")
	}
}

func TestAbilitiesMatchTheABIOfModules(t *testing.T) {
	for _, c := range []struct {
		abi   []string
		needs string
		want  bool
	}{
		{nil, "", true},
		{nil, "wheelwork_v1.1", true}, // a host of an older version announces nothing
		{[]string{"wasi-p1", "wheelwork_v1.1"}, "", true},
		{[]string{"wasi-p1", "wheelwork_v1.1"}, "wheelwork_v1.0", true},
		{[]string{"wasi-p1", "wheelwork_v1.1"}, "wheelwork_v1.1 wasi-p1", true},
		{[]string{"wasi-p1", "wheelwork_v1.1"}, "wheelwork_v1.2", false},
		{[]string{"wasi-p1", "wheelwork_v1.10"}, "wheelwork_v1.9", true},
		{[]string{"wasi-p1", "wheelwork_v2.3"}, "wheelwork_v1.1", false},
		{[]string{"wheelwork_v1.1"}, "wasi-p1", false},
		{[]string{"wasi-p1"}, "interpreter-0123456789ab", false},
		{[]string{"wasi-p1", "interpreter-0123456789ab"}, "interpreter-0123456789ab", true},
		{[]string{"native:settle"}, "wasi-p1", false},
		{[]string{"native:settle"}, "native:settle", true},
	} {
		if got := NewAbilities(c.abi).Has(c.needs, "shop"); got != c.want {
			t.Errorf("a host with %q has %q: %v, want %v", c.abi, c.needs, got, c.want)
		}
	}
	m := &apiv1.Job{Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Needs: []string{"wasi-p1", "wheelwork_v1.1"}}
	if got := needsOf(m); got != "wasi-p1 wheelwork_v1.1" {
		t.Errorf("needs %q", got)
	}
}
