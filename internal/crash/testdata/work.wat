;; Works as long as the second byte of its input says, in milliseconds, and
;; returns the first byte as its status. It logs its input at the start.
(module
  (import "wheelwork_v1" "input_read" (func $input (param i64 i32 i32) (result i32)))
  (import "wheelwork_v1" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "wheelwork_v1" "now_ms" (func $now (result i64)))
  (memory (export "memory") 1)
  (func (export "wheelwork_handle") (param i32) (result i32)
    (local $end i64)
    (drop (call $log (i32.const 1) (i32.const 0) (call $input (i64.const 0) (i32.const 0) (i32.const 2))))
    (local.set $end (i64.add (call $now) (i64.load8_u (i32.const 1))))
    (loop (br_if 0 (i64.lt_u (call $now) (local.get $end))))
    (i32.load8_u (i32.const 0))))
