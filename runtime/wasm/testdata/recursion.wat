;; Calls itself without end: 0 directly, 1 through the table with many locals.
(module
  (memory (export "memory") 1)
  (type $t (func (param i64) (result i64)))
  (table 1 1 funcref)
  (elem (i32.const 0) $wide)
  (func $narrow (result i32) (i32.add (call $narrow) (i32.const 1)))
  (func $wide (param i64) (result i64)
    (local i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64)
    (i64.add (local.get 0) (call_indirect (type $t) (local.get 1) (i32.const 0))))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (if (local.get 0) (then (drop (call $wide (i64.const 1)))))
    (call $narrow)))
