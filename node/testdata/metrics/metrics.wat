;; Adds 2 to the counter "orders" and records 0.5 into the histogram "seconds".
(module
  (import "wheelwork_v1" "metric_add" (func $metric (param i32 i32 i32 f64) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "ordersseconds")
  (func (export "wheelwork_handle") (param i32) (result i32)
    (i32.or
      (call $metric (i32.const 0) (i32.const 6) (i32.const 0) (f64.const 2))
      (call $metric (i32.const 6) (i32.const 7) (i32.const 2) (f64.const 0.5)))))
