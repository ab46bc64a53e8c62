// A command of WASI preview 0, made by a compiler of its time: see README.md. It writes a file in
// its first directory and prints what it reads after seeking from the start, the end and the
// current position, then the size and the type of the file, and its input.
import {
  errno, fd, fd_close, fd_filestat_get, fd_read, fd_seek, fd_write, filestat, lookupflags, oflags,
  path_filestat_get, path_open, proc_exit, rights, whence,
} from "bindings/wasi_unstable";

function abort(message: usize, file: usize, line: u32, column: u32): void { proc_exit(70); }

// Memory from 1024 on, as the command allocates nothing.
const IOV: usize = 1024, N: usize = 1040, POS: usize = 1048, FD: usize = 1056, STAT: usize = 1064, BUF: usize = 2048, NAME: usize = 1200, OUT: usize = 1300;

function check(e: errno): void { if (e != errno.SUCCESS) proc_exit(64); }

function write(to: fd, from: usize, n: usize): void {
  store<u32>(IOV, from);
  store<u32>(IOV, n, 4);
  check(fd_write(to, IOV, 1, N));
}

function print(value: u64): void {
  let at = OUT + 20;
  store<u8>(--at, 10);
  do { store<u8>(--at, 48 + <u8>(value % 10)); value /= 10; } while (value);
  write(1, at, OUT + 20 - at);
}

function read(from: fd): usize {
  store<u32>(IOV, BUF);
  store<u32>(IOV, 64, 4);
  check(fd_read(from, IOV, 1, N));
  return load<u32>(N);
}

function show(from: fd, offset: i64, w: whence): void {
  check(fd_seek(from, offset, w, POS));
  let n = read(from);
  store<u8>(BUF + n, 10);
  write(1, BUF, n + 1);
}

export function _start(): void {
  memory.grow(1);
  for (let i = 0; i < 22; i++) store<u8>(BUF + i, 97 + i); // a to v
  store<u8>(NAME, 102); // f
  check(path_open(3, lookupflags.SYMLINK_FOLLOW, NAME, 1, oflags.CREAT, rights.FD_READ | rights.FD_WRITE | rights.FD_SEEK | rights.FD_FILESTAT_GET, 0, 0, FD));
  let file = load<u32>(FD);
  write(file, BUF, 22);
  show(file, 6, whence.SET);
  show(file, -8, whence.END);
  show(file, -3, whence.CUR);
  let st = changetype<filestat>(STAT);
  check(fd_filestat_get(file, st));
  print(st.size);
  print(st.filetype);
  check(fd_close(file));
  check(path_filestat_get(3, 0, NAME, 1, st));
  print(st.size);
  let n = read(0);
  write(1, BUF, n);
}
