// Package wasm runs tasks as WebAssembly: WASI commands and wheelwork reactors. It owns the
// checks of uploads (Inspect), compilation (Load), the pool of instances and the host
// functions. It is the only package that imports the engine, wazero.
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
