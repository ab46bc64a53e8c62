;; Traps before there is an instance.
(module
  (memory (export "memory") 1)
  (start $start)
  (func $start unreachable)
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
