// Package house holds the tests over the whole repository: who may import whom
// and why, that every package says what it owns, and that what is generated or
// formatted by a tool is as the tool makes it. It owns no code.
//
// They read the sources themselves, not what `go list` selects for this
// machine, so that the files of every platform are held to the same rules.
package house
