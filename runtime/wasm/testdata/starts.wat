;; Its start function never ends.
(module
  (memory (export "memory") 1)
  (func $f (loop (br 0)))
  (start $f)
  (func (export "wheelwork_describe"))
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
