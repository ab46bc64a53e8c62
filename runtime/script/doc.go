// Package script says what a script is to this program: the source text of a
// handler and the digest of the interpreter that runs it, in one file.
//
// The file is a WebAssembly module without any code: its one section of weight
// is the custom section "wheelwork.script", JSON that names the language, the
// interpreter and the sources. So a script goes every way that a module goes
// (upload, versions, aliases, signatures, hosts that fetch by digest), its
// digest covers the sources and the interpreter, and a manifest is the same
// section in it as in any module.
//
// The package also knows the interpreters that can be driven, by digest: which
// functions an interpreter exports is part of how it is driven, so another build
// is another row. It is pure: it reads no file and runs nothing.
package script
