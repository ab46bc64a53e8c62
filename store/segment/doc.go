// Package segment keeps blocks of rows in append-only files and finds them
// again by key.
//
// A [Log] is a row of segment files. A block is written once, with one write,
// and never changes; its place in the log, its position, is its name. Each
// block lists the 64-bit keys under which its rows are found. When a segment is
// full it is sealed: the sorted (key, block) postings are written behind its
// blocks, and of the index only one fence per 512 postings stays in memory. The
// postings of the one active segment are in memory and are rebuilt from its
// blocks at open.
//
// So a question walks the segments newest first and costs one small read per
// segment and key, however many rows there are. The log never rewrites: space
// comes back when [Log.Retain] or [Log.Trim] unlinks whole segments.
//
// Every byte that is read back is covered by a CRC-32C that also covers its
// position; a block that fails it, or is found at another place, is [ErrCorrupt].
//
// One goroutine at a time writes (a lock makes sure of it); any number read,
// without waiting for the writer. docs/formats/history.md describes the bytes.
package segment
