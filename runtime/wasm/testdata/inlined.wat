;; Runs a batch in a function that calls nothing but the host: each task counts for a few
;; microseconds.
(module
  (import "wheelwork_v1" "job_next" (func $job_next (param i32) (result i32)))
  (import "wheelwork_v1" "job_done" (func $job_done (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0))
  (func (export "wheelwork_run") (param i32) (result i32) (local $i i32)
    (loop $next
      (if (i32.eq (call $job_next (i32.const 0)) (i32.const 1)) (then
        (local.set $i (i32.const 2000))
        (loop $busy
          (br_if $busy (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
        (drop (call $job_done (i32.const 0)))
        (br $next))))
    (i32.const 0)))
