;; Puts out what the function in its table says, then puts another one there.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (type $t (func (result i32)))
  (table 1 funcref)
  (elem (i32.const 0) $first)
  (elem declare func $second)
  (func $first (result i32) (i32.const 1))
  (func $second (result i32) (i32.const 2))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i32.store (i32.const 0) (call_indirect (type $t) (i32.const 0)))
    (table.set 0 (i32.const 0) (ref.func $second))
    (call $out (i32.const 0) (i32.const 1))))
