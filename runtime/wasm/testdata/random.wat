;; Asks for random bytes for the whole of a large memory, for ever: through WASI
;; (0) and through wheelwork_v1 (1).
(module
  (import "wasi_snapshot_preview1" "random_get" (func $wasi (param i32 i32) (result i32)))
  (import "wheelwork_v1" "random" (func $own (param i32 i32) (result i32)))
  (memory (export "memory") 2000)
  (func (export "wheelwork_handle") (param i32) (result i32)
    (loop
      (if (local.get 0)
        (then (drop (call $own (i32.const 0) (i32.const 131072000))))
        (else (drop (call $wasi (i32.const 0) (i32.const 131072000)))))
      (br 0))
    (i32.const 0)))
