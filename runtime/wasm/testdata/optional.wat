;; Imports two functions of a version to come, and puts out what they answer.
(module
  (import "wheelwork_v1" "telepathy" (func $telepathy (param i32 f64) (result i32)))
  (import "wheelwork_v1" "foresight" (func $foresight (result i64)))
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i64.store (i32.const 0) (i64.extend_i32_s (call $telepathy (i32.const 1) (f64.const 2))))
    (i64.store (i32.const 8) (call $foresight))
    (call $out (i32.const 0) (i32.const 16))))
