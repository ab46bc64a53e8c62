;; Works on the first directory that is mounted. Standard input is a letter and a path:
;; w  opens or makes the file, puts out what is in it, leaves SECRET!! in it
;; f  writes into the file until that fails, puts out the error and the MiB written
;; o  opens the file, puts out the error
;; m  opens the file again and again until that fails, puts out how often
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 20)
  (data (i32.const 900) "SECRET!!")
  (global $length (mut i32) (i32.const 0))
  (func $vector (param $ptr i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $ptr))
    (i32.store (i32.const 4) (local.get $len)))
  ;; Opens the path; creat is 1 to make it. The descriptor is at 16.
  (func $file (param $creat i32) (result i32)
    (call $open (i32.const 3) (i32.const 1) (i32.const 1001) (global.get $length) (local.get $creat)
      (i64.const 0x1fffffff) (i64.const 0x1fffffff) (i32.const 0) (i32.const 16)))
  (func $out (param $ptr i32) (param $len i32)
    (call $vector (local.get $ptr) (local.get $len))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start")
    (local $mode i32) (local $errno i32) (local $count i32)
    (call $vector (i32.const 1000) (i32.const 1000))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (global.set $length (i32.sub (i32.load (i32.const 8)) (i32.const 1)))
    (local.set $mode (i32.load8_u (i32.const 1000)))
    (if (i32.eq (local.get $mode) (i32.const 119)) (then ;; w
      (if (call $file (i32.const 1)) (then unreachable))
      (call $vector (i32.const 3000) (i32.const 100))
      (if (call $read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
      (call $out (i32.const 3000) (i32.load (i32.const 8)))
      (call $vector (i32.const 900) (i32.const 8))
      (if (call $write (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))))
    (if (i32.eq (local.get $mode) (i32.const 102)) (then ;; f
      (if (call $file (i32.const 1)) (then unreachable))
      (loop $more
        (call $vector (i32.const 65536) (i32.const 0x100000))
        (local.set $errno (call $write (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)))
        (if (i32.eqz (local.get $errno)) (then
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br $more))))
      (i32.store (i32.const 20) (local.get $errno))
      (i32.store (i32.const 24) (local.get $count))
      (call $out (i32.const 20) (i32.const 8))))
    (if (i32.eq (local.get $mode) (i32.const 111)) (then ;; o
      (i32.store (i32.const 20) (call $file (i32.const 0)))
      (call $out (i32.const 20) (i32.const 4))))
    (if (i32.eq (local.get $mode) (i32.const 109)) (then ;; m
      (loop $more
        (if (i32.eqz (call $file (i32.const 1))) (then
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br $more))))
      (i32.store (i32.const 20) (local.get $count))
      (call $out (i32.const 20) (i32.const 4))))))
