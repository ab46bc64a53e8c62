// Package lines tells which line of source code a place in a module's code was
// compiled from, by the debug information that compilers leave in its custom
// sections (DWARF, versions 2 to 5).
//
// A module is rewritten before it runs, so places move: Parse reads what there is
// of the module as it was uploaded, Move carries it along, and a Table looks
// up where a trap was. What is read comes from strangers and nothing depends on
// them: what is malformed or beyond a bound yields fewer lines, and no error.
package lines
