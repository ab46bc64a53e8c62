// Package house holds the tests over the whole repository: which package may import which
// and why, that every package says what it owns, and that generated and formatted files
// match the output of their tools. It owns no production code.
//
// The tests read the sources themselves, not the files that `go list` selects for this
// machine. So the files of every platform obey the same rules.
package house
