// Package wasm runs tasks as WebAssembly: WASI commands, wheelwork reactors and scripts. It
// owns the engine with its loaded modules, the instances and their pool, and the calls of
// handlers. It and the packages below it are the only ones that import the engine, wazero.
//
// The packages below it, from the bottom up: internal/binary and internal/meter read and
// rewrite modules, internal/lines reads their line tables, internal/memory counts their
// memory, internal/files has their files, internal/codecache stores their code,
// internal/guest has the state of one call, internal/hostabi the functions that guests
// import, internal/quickjs and internal/cpython the interpreters, and internal/inspect the
// checks of uploads.
//
// No module runs as uploaded. Load parses it, bounds it and rewrites it with
// internal/meter, so that a guest yields its thread within a fraction of a millisecond.
// Compiled Wasm has no other point where Go could stop it, and one endless loop would stop
// the garbage collector of the whole process.
//
// A WASI command gets a fresh instance per task. A reactor's instance is reset after each
// task to its state after _initialize and then reused. The reset copies the parts of the
// memory that the task wrote to, which the guest's code records in dirty bits, from a
// shared image, and restores the globals. The instance is discarded after a trap, when its
// memory grew, or when its module changes state that cannot be reset. A task sees nothing
// of an earlier task, unless the module asks for a shared instance: tasks of the same app,
// grants and memory limit then share it.
//
// Guests have no files, network or environment except those of the task. They have a real
// clock, real randomness and a sleep that ends with the task.
package wasm
