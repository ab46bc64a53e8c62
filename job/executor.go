package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Executor is what executes a handler that is in no module. The definition names no
// module, and the name of the handler has the form KIND:NAME:
//
//	native:NAME          a function of a program that embeds a worker (sdk/worker)
//	plugin:NAME/HANDLER  a handler of a plugin that the operator of the host allows; plugin:NAME is plugin:NAME/main
//	builtin:NAME         a function of the host itself that its operator allows: http, exec (see [FillRequest])
//
// The zero value is a handler of a module.
type Executor struct {
	Kind    string // Native, Plugin or Builtin
	Name    string
	Handler string // of a Plugin
}

// The kinds of executors.
const (
	Native  = "native"
	Plugin  = "plugin"
	Builtin = "builtin"
)

// builtins are the names of the kind Builtin, sorted.
var builtins = []string{"exec", "http"}

// IsExecutor reports whether the name of a handler names an executor.
func IsExecutor(handler string) bool { return strings.Contains(handler, ":") }

// ParseExecutor reads the name of a handler that is in no module.
func ParseExecutor(handler string) (Executor, error) {
	kind, name, ok := strings.Cut(handler, ":")
	e := Executor{Kind: kind, Name: name}
	if kind == Plugin {
		e.Name, e.Handler, _ = strings.Cut(name, "/")
		if !strings.Contains(name, "/") {
			e.Handler = mainHandler
		}
	}
	switch {
	case !ok || kind != Native && kind != Plugin && kind != Builtin:
		return Executor{}, fmt.Errorf("%q is in no module: write native:NAME, plugin:NAME/HANDLER or builtin:NAME, or name a module", handler)
	case kind == Builtin && !slices.Contains(builtins, name):
		return Executor{}, fmt.Errorf("%q is not built in: use builtin:%s", handler, strings.Join(builtins, " and builtin:"))
	}
	if err := naming.Check("the name in "+kind+":NAME", e.Name); err != nil {
		return Executor{}, err
	}
	if kind == Plugin {
		if err := naming.Check("the handler in plugin:NAME/HANDLER", e.Handler); err != nil {
			return Executor{}, err
		}
	}
	return e, nil
}

// String returns the full name of the handler, with the defaults filled in.
func (e Executor) String() string {
	if e.Kind == Plugin {
		return e.Needs() + "/" + e.Handler
	}
	return e.Needs()
}

// Needs returns what a host that can run the handler announces in Hello.abi. The name of
// a plugin appears there without its handlers. A host that offers it only to some apps
// announces it once for each, as [ForApp] writes it.
func (e Executor) Needs() string {
	if e.Kind == "" {
		return ""
	}
	return e.Kind + ":" + e.Name
}

// ForApp returns the ability of a host that it offers to one app only.
func ForApp(ability, app string) string { return ability + "@" + app }

// needsOf returns what a host must announce in Hello.abi to run the handler of a
// definition, separated by spaces. "" matches a host with any ABI of modules.
func needsOf(d *apiv1.Job) string {
	h := d.GetHandler()
	if h.GetModule() != "" || !IsExecutor(h.GetName()) {
		return strings.Join(d.GetNeeds(), " ")
	}
	e, err := ParseExecutor(h.Name)
	if err != nil { // written by a later version: only a host that announces exactly this name fits
		return h.Name
	}
	if h.Command != "" {
		return e.Needs() + "/" + h.Command
	}
	return e.Needs()
}

// Abilities are what a host announced in Hello.abi. They are not safe for concurrent use.
// A host that announced nothing runs modules: its version is older than the other
// executors.
type Abilities struct {
	modules bool
	abi     []string // of modules; empty: the host's version is older than these names
	others  map[string]bool
	limited map[string]map[string]bool // apps by ability, of the abilities that the host offers only to some
	known   map[string]bool            // cached results of Has, which is called for each run and has few different arguments
}

// NewAbilities reads Hello.abi.
func NewAbilities(abi []string) Abilities {
	a := Abilities{modules: len(abi) == 0, known: map[string]bool{}}
	for _, s := range abi {
		if !IsExecutor(s) {
			a.modules = true
			a.abi = append(a.abi, s)
			continue
		}
		if ability, app, ok := strings.Cut(s, "@"); ok {
			if a.limited == nil {
				a.limited = map[string]map[string]bool{}
			}
			if a.limited[ability] == nil {
				a.limited[ability] = map[string]bool{}
			}
			a.limited[ability][app] = true
			continue
		}
		if a.others == nil {
			a.others = map[string]bool{}
		}
		a.others[s] = true
	}
	return a
}

// maxKnown bounds the cached results.
const maxKnown = 256

// Has reports whether a host has what a run of an app needs, in the form of needsOf.
func (a Abilities) Has(needs, app string) bool {
	if a.limited[needs][app] {
		return true
	}
	has, ok := a.known[needs]
	if !ok {
		has = a.has(needs)
		if len(a.known) < maxKnown && a.known != nil {
			a.known[needs] = has
		}
	}
	return has
}

func (a Abilities) has(needs string) bool {
	if IsExecutor(needs) {
		return a.others[needs]
	}
	for need := range strings.FieldsSeq(needs) {
		if len(a.abi) > 0 && !slices.ContainsFunc(a.abi, func(s string) bool { return includes(s, need) }) {
			return false
		}
	}
	return a.modules
}

// includes reports whether a host that serves one ABI can run code for another one. A
// minor version includes the earlier ones.
func includes(served, need string) bool {
	major, minor, ok := strings.Cut(need, ".")
	m, n, isVersion := strings.Cut(served, ".")
	if !ok || !isVersion || m != major {
		return served == need
	}
	want, err1 := strconv.Atoi(minor)
	have, err2 := strconv.Atoi(n)
	return err1 == nil && err2 == nil && have >= want
}
