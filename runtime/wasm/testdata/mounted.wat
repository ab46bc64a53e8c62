;; Looks in _initialize what is mounted, as libraries of C do, and puts out the name
;; of the mount; then opens the path in its input there and puts out the error, which
;; makes the file if there is none.
(module
  (import "wheelwork_v1" "input_read" (func $input_read (param i64 i32 i32) (result i32)))
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_initialize")
    (if (i32.eqz (call $prestat (i32.const 3) (i32.const 0))) (then
      (drop (call $name (i32.const 3) (i32.const 8) (i32.load (i32.const 4)))))))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i32.store (i32.const 100)
      (call $open (i32.const 3) (i32.const 1) (i32.const 200) (call $input_read (i64.const 0) (i32.const 200) (i32.const 100))
        (i32.const 5) (i64.const 0x1fffffff) (i64.const 0x1fffffff) (i32.const 0) (i32.const 110)))
    (drop (call $out (i32.const 100) (i32.const 4)))
    (call $out (i32.const 8) (i32.load (i32.const 4)))))
