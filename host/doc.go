// Package host is a worker: it takes tasks from a server, runs them and brings
// back what came of them. It is generic: what a task runs is a module that the
// host loads by digest when it first needs it.
//
// The session with the server is host/session's. This room gives it what runs a
// task, and a spool for results on an mq log.
package host
