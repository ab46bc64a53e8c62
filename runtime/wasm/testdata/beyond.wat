;; It offers the host a buffer behind the end of its memory, for what there is not.
(module
  (import "wheelwork_v1" "param_get" (func $param (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "nothing")
  (func (export "wheelwork_handle") (param i32) (result i32)
    (drop (call $param (i32.const 0) (i32.const 7) (i32.const 131072) (i32.const 64)))
    (i32.const 0)))
