;; Answers each task with its input, up to 4096 bytes, one by one or in a batch. An input
;; that begins with "b" takes a few milliseconds, one with "c" a few microseconds; one with
;; "t" is answered in two parts.
(module
  (import "wheelwork_v1" "input_read" (func $input_read (param i64 i32 i32) (result i32)))
  (import "wheelwork_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
  (import "wheelwork_v1" "job_next" (func $job_next (param i32) (result i32)))
  (import "wheelwork_v1" "job_done" (func $job_done (param i32) (result i32)))
  (memory (export "memory") 1)
  (func $handle (export "wheelwork_handle") (param i32) (result i32) (local $n i32) (local $i i32)
    (local.set $n (call $input_read (i64.const 0) (i32.const 0) (i32.const 4096)))
    (local.set $i (i32.const 1))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 98)) (then (local.set $i (i32.const 5000000))))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 99)) (then (local.set $i (i32.const 2000))))
    (loop $busy
      (br_if $busy (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 116)) (then
      (drop (call $output_write (i32.const 0) (i32.const 1)))
      (drop (call $output_write (i32.const 1) (i32.sub (local.get $n) (i32.const 1)))))
    (else
      (drop (call $output_write (i32.const 0) (local.get $n)))))
    (i32.const 0))
  (func (export "wheelwork_run") (param $handler i32) (result i32)
    (loop $next
      (if (i32.eq (call $job_next (i32.const 0)) (i32.const 1)) (then
        (drop (call $job_done (call $handle (local.get $handler))))
        (br $next))))
    (i32.const 0)))
