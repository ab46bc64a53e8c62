;; Calls the functions in which WASI preview 0 differs from preview 1, on a file in the first
;; directory that is mounted, and puts out numbers of 4 bytes. The path is in the first bytes
;; of the memory, and the result of path_filestat_get takes its last 56 bytes.
(module
  (import "wasi_unstable" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_unstable" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_unstable" "fd_seek" (func $seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_unstable" "fd_filestat_get" (func $stat (param i32 i32) (result i32)))
  (import "wasi_unstable" "path_filestat_get" (func $path_stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_unstable" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 40) "file")
  (data (i32.const 200) "hello")
  (data (i32.const 456) "kept")
  (global $next (mut i32) (i32.const 1000))
  (func $put (param i32)
    (i32.store (global.get $next) (local.get 0))
    (global.set $next (i32.add (global.get $next) (i32.const 4))))
  (func $move (param $offset i64) (param $whence i32)
    (i64.store (i32.const 104) (i64.const -1))
    (call $put (call $seek (i32.load (i32.const 100)) (local.get $offset) (local.get $whence) (i32.const 104)))
    (call $put (i32.load (i32.const 104))))
  (func $vector (param $ptr i32) (param $len i32)
    (i32.store (i32.const 120) (local.get $ptr))
    (i32.store (i32.const 124) (local.get $len)))
  (func $look (param $at i32)
    (call $put (i32.load8_u offset=16 (local.get $at))) ;; its type
    (call $put (i32.load offset=20 (local.get $at))) ;; number of links
    (call $put (i32.load offset=24 (local.get $at))) ;; size
    (call $put (i32.ne (i32.const 0) (i32.load offset=44 (local.get $at))))) ;; mtim
  (func (export "_start")
    (call $put (call $open (i32.const 3) (i32.const 1) (i32.const 40) (i32.const 4) (i32.const 1)
      (i64.const 0x1fffffff) (i64.const 0x1fffffff) (i32.const 0) (i32.const 100)))
    (call $vector (i32.const 200) (i32.const 5))
    (call $put (call $write (i32.load (i32.const 100)) (i32.const 120) (i32.const 1) (i32.const 112)))
    (call $move (i64.const 2) (i32.const 2)) ;; from the start
    (call $move (i64.const 1) (i32.const 0)) ;; from here
    (call $move (i64.const -1) (i32.const 1)) ;; from the end
    (call $move (i64.const 0) (i32.const 3))
    (call $put (call $stat (i32.load (i32.const 100)) (i32.const 400)))
    (call $look (i32.const 400))
    (call $put (i32.eq (i32.load (i32.const 456)) (i32.const 0x7470656b))) ;; what is behind it
    (call $put (call $path_stat (i32.const 3) (i32.const 0) (i32.const 40) (i32.const 4) (i32.const 65480)))
    (call $look (i32.const 65480))
    (call $put (i32.eq (i32.load (i32.const 40)) (i32.const 0x656c6966))) ;; the path
    (call $put (call $path_stat (i32.const 3) (i32.const 0) (i32.const 40) (i32.const 4) (i32.const 65481)))
    (call $put (call $stat (i32.const 99) (i32.const 400)))
    ;; Two clocks: 10 s with the id 7, 20 ms with the id 8.
    (i64.store (i32.const 512) (i64.const 7))
    (i32.store (i32.const 536) (i32.const 1))
    (i64.store (i32.const 544) (i64.const 10000000000))
    (i64.store (i32.const 568) (i64.const 8))
    (i32.store (i32.const 592) (i32.const 1))
    (i64.store (i32.const 600) (i64.const 20000000))
    (call $put (call $poll (i32.const 512) (i32.const 700) (i32.const 2) (i32.const 112)))
    (call $put (i32.load (i32.const 112)))
    (call $put (i32.load (i32.const 700)))
    (call $vector (i32.const 1000) (i32.sub (global.get $next) (i32.const 1000)))
    (drop (call $write (i32.const 1) (i32.const 120) (i32.const 1) (i32.const 112)))))
