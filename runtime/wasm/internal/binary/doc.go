// Package binary parses core WebAssembly modules. It splits a module into its parts,
// decodes instructions, and refuses modules that are malformed or exceed a limit.
//
// It checks structure (sections, counts, indices into imports, balanced control), but not
// types, which the engine checks when it compiles the module. The Module retains the
// bytes given to Parse, which must not change.
package binary
