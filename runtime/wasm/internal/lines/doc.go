// Package lines tells which line of source code a place in a module's code was
// compiled from, by the line tables that compilers leave in its custom sections
// (DWARF, versions 2 to 5).
//
// A module is rewritten before it runs, so places move: Parse reads the tables
// of the module as it was uploaded, Move carries them along, and a Table looks
// up where a trap was. The tables come from strangers and nothing depends on
// them: what is malformed or beyond a bound yields fewer lines, and no error.
//
// Only the line of an instruction itself is told; calls that a compiler has
// replaced by the body of their function are not.
package lines
