// Package host executes tasks: it receives them from a server, runs them and returns
// their results. A host is generic: a task names a module, which the host loads by digest
// when it first needs it.
//
// Package host/session implements the session with the server. This package gives it the
// functions that execute a task, and a spool for results on an mq log.
package host
