// Package session is the worker's half of the Work protocol: one stream to the
// server that serves it, with credits and tasks, results and their
// acknowledgements, cancels, progress, log lines and heartbeats. What executes a
// task is its user's: the host loads modules, sdk/worker calls functions of the
// program that it is in. docs/work-protocol.md tells the protocol for others.
//
// A worker dials out and listens on nothing. A credit is room for one task; a
// worker holds at most as many tasks as it has granted credits. A task is held
// until the server has acknowledged its result. Whatever happens to the stream
// in between, the next one begins with the list of what is held.
// A result that is not acknowledged within a fifth of a second is given to the
// spool, if there is one, so a restart does not lose it either.
//
//	received ─▶ queued ─▶ running ─▶ finished ─▶ acknowledged: forgotten
//	               └── cancelled ──────▲
package session
