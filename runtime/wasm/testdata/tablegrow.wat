;; Asks for a hundred million table entries and puts out what table.grow returned.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i32.store (i32.const 0) (table.grow 0 (ref.null func) (i32.const 100000000)))
    (call $out (i32.const 0) (i32.const 4))))
