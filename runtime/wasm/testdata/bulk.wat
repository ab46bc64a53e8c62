;; Exports fill and copy, so that a test can compare them with Go's.
(module
  (memory (export "memory") 32)
  (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
  (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
