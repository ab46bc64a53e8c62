// Package host is a worker: it takes tasks from a server, runs them and brings
// back what came of them. It is generic: what a task runs is a module that the
// host loads by digest when it first needs it.
//
// A host dials out and listens on nothing. One stream carries everything: down
// come tasks, cancels and acknowledgements, up go credits, results, progress
// and log lines. A credit is room for one task; a host holds at most as many
// tasks as it has granted credits.
//
// A task is held until the server has acknowledged its result. Whatever happens
// to the stream in between, the next one begins with the list of what is held.
// A result that is not acknowledged within a fifth of a second is written to
// the spool, so a restart of the host does not lose it either.
//
//	received ─▶ queued ─▶ running ─▶ finished ─▶ acknowledged: forgotten
//	               └── cancelled ──────▲
package host
