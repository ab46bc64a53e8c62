// Package segment stores blocks of rows in append-only files and finds them by key.
//
// A [Log] is a sequence of segment files. A block is written once, with one write, and
// never changes. Its position in the log identifies it. Each block lists the 64-bit keys
// under which its rows are found.
//
// A full segment is sealed: its sorted (key, block) postings are written behind its
// blocks. Only one fence per 512 postings of that index stays in memory. The postings of
// the one active segment are in memory and are rebuilt from its blocks at open.
//
// A search walks the segments newest first. It costs one small read per segment and key,
// however many rows there are. The log never rewrites data. Space is freed when
// [Log.Retain] or [Log.Trim] unlinks whole segments.
//
// A CRC-32C covers every byte that is read back, together with its position. A block
// whose checksum is wrong, or that is at another position, is [ErrCorrupt].
//
// One goroutine at a time writes; a lock ensures that. Any number of goroutines read
// without waiting for the writer. docs/formats/history.md describes the bytes.
package segment
