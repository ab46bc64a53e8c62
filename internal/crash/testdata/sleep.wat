;; Sleeps for as many seconds as the first byte of its input says, and succeeds.
(module
  (import "wheelwork_v1" "input_read" (func $input (param i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "wheelwork_handle") (param i32) (result i32)
    (drop (call $input (i64.const 0) (i32.const 0) (i32.const 1)))
    ;; a subscription at 64: userdata, tag 0 = clock, clock 1 = monotonic, timeout in ns
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.mul (i64.load8_u (i32.const 0)) (i64.const 1000000000)))
    (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192))))
