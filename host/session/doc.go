// Package session is the host's half of the Work protocol: one stream to the
// server that serves it, with credits and tasks, results and their
// acknowledgements, cancels, progress, log lines and heartbeats. The user of the package
// executes the tasks: a host loads modules, sdk/worker calls functions of its own program.
// docs/work-protocol.md describes the protocol for other implementations.
//
// A host opens connections and does not listen. A credit is room for one task; a host
// holds at most as many tasks as it has granted credits. It holds a task until the server
// has acknowledged its result. However a stream ends, the next one begins with the list of
// the tasks that the host holds. A result without an acknowledgement within 200 ms goes to
// the spool, if there is one, so that a restart does not lose it either.
//
//	received ─▶ queued ─▶ running ─▶ finished ─▶ acknowledged: forgotten
//	               └── cancelled ──────▲
package session
