// Package lines finds the source line from which an instruction of a module was compiled.
// It uses the debug information that compilers write to custom sections (DWARF, versions
// 2 to 5).
//
// A module is rewritten before it runs, so addresses change. Parse reads the debug
// information of the uploaded module, Move translates it to the rewritten code, and a
// Table looks up the address of a trap. The input is untrusted, and only traces depend on
// it: malformed or oversized input yields fewer lines and no error.
package lines
