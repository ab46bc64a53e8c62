// Package cpython owns the bridge between CPython, the interpreter of Python, and the host.
//
// CPython is a WASI command: each task gets a fresh instance, which finds the sources in a
// file system of its own. The command imports no function of wheelwork, so the Python SDK
// communicates with the host through the standard streams: it writes a request to standard
// output and reads the answer from standard input. The print function of a script writes to
// standard error, which is the log.
//
// A request is u32 n, then n bytes: u8 length and name of the function, u8 number of
// arguments, and for each argument a tag and its value: 'i' and i64, 'f' and f64, 'b' and
// u32 length and bytes, 'o' and u32 capacity of a buffer that the function fills. 'b' and
// 'o' represent two parameters, pointer and length; 'p' is like 'o' but represents only the
// pointer. The answer is the result as i64 (an f64 as its bits), then the bytes of each 'o'
// and 'p' in full length. Numbers are little-endian.
package cpython
