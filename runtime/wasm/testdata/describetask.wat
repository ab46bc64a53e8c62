;; Asks for a task while it describes itself.
(module
  (import "wheelwork_v1" "input_len" (func $input_len (result i64)))
  (memory (export "memory") 1)
  (func (export "wheelwork_describe") (drop (call $input_len)))
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
