;; Calls in loops, whose cost has to be counted where it arises: "one" calls once in each
;; round, "many" more often than it counts, "deep" itself as "fib" does.
(module
  (memory (export "memory") 1)
  (func $work (param i32) (result i32) (local $i i32)
    (local.set $i (i32.const 20))
    (loop $l
      (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (local.get 0))
  (func (export "one") (param $n i32) (result i32)
    (loop $l
      (drop (call $work (local.get $n)))
      (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (i32.const 0))
  (func (export "many") (param $n i32) (result i32)
    (loop $l
      (drop (call $work (call $work (call $work (local.get $n)))))
      (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (i32.const 0))
  (func $deep (export "deep") (param $n i32) (result i32)
    (loop $l
      (if (i32.gt_u (local.get $n) (i32.const 1)) (then
        (drop (call $deep (i32.sub (local.get $n) (i32.const 1))))
        (local.set $n (i32.sub (local.get $n) (i32.const 2)))
        (br $l))))
    (i32.const 0))
  (func (export "wheelwork_handle") (param i32) (result i32) (i32.const 0)))
