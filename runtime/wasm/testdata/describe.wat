;; Describes itself.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"handlers\":[{\"name\":\"one\"},{\"name\":\"two\"}],\"capabilities\":{\"kv\":[\"b\"]}}")
  (func (export "wheelwork_describe") (drop (call $out (i32.const 0) (i32.const 72))))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i32.store (i32.const 200) (local.get 0))
    (call $out (i32.const 200) (i32.const 4))))
