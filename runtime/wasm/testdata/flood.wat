;; A command that writes without end to the stream its argument count names:
;; one argument more than the name: 1 (output), two: 2 (log).
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 1024) "flood, flood and no end of it\n")
  (func (export "_start")
    (local i32)
    (drop (call $sizes (i32.const 16) (i32.const 20)))
    (local.set 0 (i32.sub (i32.load (i32.const 16)) (i32.const 1)))
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 30))
    (loop (drop (call $write (local.get 0) (i32.const 0) (i32.const 1) (i32.const 100))) (br 0))))
