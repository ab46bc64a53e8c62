;; Counts, in memory and in a global, how often it was started, initialised and
;; called; grows its memory while it initialises.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (start $start)
  (func $start (i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1))))
  (func (export "_initialize")
    (drop (memory.grow (i32.const 3)))
    (i32.store8 (i32.const 200000) (i32.const 9))
    (i32.store8 (i32.const 1) (i32.add (i32.load8_u (i32.const 1)) (i32.const 1))))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store8 (i32.const 2) (global.get $calls))
    (i32.store8 (i32.const 3) (i32.load8_u (i32.const 200000)))
    (call $out (i32.const 0) (i32.const 4))))
