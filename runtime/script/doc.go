// Package script defines the file format of a script: the source text of a handler
// together with the digest of the interpreter that runs it.
//
// The file is a WebAssembly module without code. Its main content is the custom section
// "wheelwork.script": JSON with the language, the interpreter and the sources. Everything
// that works for modules therefore works for scripts: uploads, versions, aliases,
// signatures, and hosts that fetch by digest. The digest of the file covers the sources
// and the interpreter. A manifest is the same custom section as in any module.
//
// The package also lists the supported interpreters by digest. How a host drives an
// interpreter depends on the functions that its build exports, so each build has its own
// row. The package is pure: it reads no file and runs no code.
package script
