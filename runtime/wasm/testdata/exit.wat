;; A command that says "going" on stderr and exits with the code that is the
;; first byte of its input; without input it returns.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "going\n")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 128))
    (i32.store (i32.const 4) (i32.const 1))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 6))
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 20)))
    (if (i32.load (i32.const 16)) (then (call $exit (i32.load8_u (i32.const 128)))))))
