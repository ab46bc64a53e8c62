;; Its _initialize never ends.
(module
  (memory (export "memory") 1)
  (func (export "_initialize") (loop (br 0)))
  (func (export "wheelwork_run") (param i32) (result i32) (i32.const 0))
  (func (export "wheelwork_describe"))
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
