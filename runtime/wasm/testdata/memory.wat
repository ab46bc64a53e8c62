;; 0: grows as far as it may, writes to the last byte, and puts out the number of pages.
;; 1: grows as far as it may and fills and copies the whole memory for ever.
(module
  (import "wheelwork_v1" "output_write" (func $out (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $grow (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))))
  (func (export "wheelwork_handle") (param i32) (result i32)
    (call $grow)
    (if (local.get 0) (then
      (loop
        (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
        (memory.copy (i32.const 1) (i32.const 0) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)))
        (br 0))))
    (i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 1))
    (i32.store (i32.const 0) (memory.size))
    (call $out (i32.const 0) (i32.const 4))))
