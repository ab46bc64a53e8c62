;; Handler 0 puts out how often its instance was called, by its memory, after it
;; made sure that its global says the same. Handler 1 counts a million down.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (local $left i32)
    (if (local.get 0)
      (then
        (local.set $left (i32.const 1000000))
        (loop
          (br_if 0 (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (return (i32.const 0))))
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.const 40000) (i32.add (i32.load (i32.const 40000)) (i32.const 1)))
    (if (i32.ne (global.get $calls) (i32.load (i32.const 40000))) (then unreachable))
    (call $out (i32.const 40000) (i32.const 4))))
