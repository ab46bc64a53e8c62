// Package binary reads core WebAssembly modules: it splits a module into its
// parts, decodes instructions, and refuses what is malformed or over a limit.
//
// It checks structure (sections, counts, indices into imports, balanced
// control), not types: an engine that compiles the module checks those. Bytes
// given to Parse are kept by the Module and must not change.
package binary
