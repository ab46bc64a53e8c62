// Package wasm runs tasks as WebAssembly: WASI commands and wheelwork reactors.
// It owns the upload gate (Inspect), compilation (Load), the pool of instances
// and the host functions, and is the only room that imports the engine, wazero.
//
// No module runs as uploaded. Load parses it, bounds it and rewrites it with
// internal/meter, so that a guest gives its thread back within a fraction of a
// millisecond: compiled Wasm has no other point where Go could stop it, and one
// endless loop would stop the garbage collector of the whole process.
//
// A WASI command gets a fresh instance per task. A reactor's instance is reset
// after each task to what it was after _initialize, and used again: the parts of
// its memory that the task wrote to, which its code marks, are copied from a
// shared image, and globals are set back. It is thrown away after a trap, when
// its memory grew, or when its module changes state that cannot be set back.
// Nothing that one task left behind is seen by the next, unless the module asks
// for a shared instance: then it is by tasks of the same app, grants and limit.
//
// Guests have no files, no network and no environment but the task's. They
// have a real clock, real randomness and a sleep that ends with the task.
package wasm
