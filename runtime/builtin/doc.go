// Package builtin runs tasks that need no program of a user: an HTTP request,
// or a command that the operator of a host allows.
//
// Both do nothing until the operator says what they may do: which servers may be
// called, and which commands there are. A job chooses among these, by name, and
// gives the parameters that they leave open.
package builtin
