// Package builtin runs tasks that need no program of the user: an HTTP request, or a
// command that the operator of a host allows.
//
// By default, both executors allow nothing. The operator lists the servers that jobs may
// call and the commands that jobs may run. A job chooses a command by name, and sets only
// the parameters that the operator has left open.
package builtin
