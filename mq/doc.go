// Package mq is a durable log of bytes: append, read in order, trim. It knows nothing of what it carries.
//
// It is the journal of a single machine, the ingress of a server and the result spool of a host. The package owns
// the files of one directory per log: their format, who may write them, when a record counts as durable, and what
// is left after a crash.
//
//	log, err := mq.Open(mq.Config{Dir: "data/journal"})
//	first, err := log.Append([]mq.Record{{Queue: 7, Type: 1, Body: b}}, func(err error) {
//		// nil: synced to the device
//	})
//	err = log.Read(applied+1, func(e mq.Entry) error { return apply(e) })
//	err = log.Trim(snapshot)
//
// # Promises
//
//   - Sequences are dense: the first record of a log is 1, each following one is one more, across restarts.
//   - What one Append staged is atomic: after a crash all of it is there or nothing. It lies in one segment.
//   - What was acknowledged is there after a crash, in order and once, or Open or Read refuses with a
//     *CorruptError that names file and offset. What was not acknowledged may be there.
//   - The first failed write or sync is final: everybody who waits gets the error, no later append is acknowledged,
//     and the log stays readable. Only opening it anew writes again.
//   - A full disk is ErrFull at Append. Space is allocated and written before a segment is used, so no store into a mapping can
//     fault for lack of it.
//
// # Files
//
//	LOCK                   exclusive lock; holds the process id
//	0000000000000001.seg   segments, numbered without a gap; all but the last are sealed
//	0000000000000002.seg
//	0000000000000001.spare filled ahead or recycled; the content means nothing
//	*.tmp                  unfinished; removed by Open
//	REPAIR                 a Repair was interrupted; Open refuses until it is repeated
//	quarantine/            originals of what a Repair replaced or took away
//
// # Segment
//
// All numbers are little-endian. Offsets are bytes from the start of the file.
//
//	0          4096                                                    size-64   size
//	├──────────┼────────┬────────┬────────┬────────┬────────┬─ ─ ─ ─ ─ ┼─────────┤
//	│ header   │ record │ record │ commit │ record │ commit │  unused  │ footer  │
//	└──────────┴────────┴────────┴────────┴────────┴────────┴─ ─ ─ ─ ─ ┴─────────┘
//	            ╰───── a flush group ────╯ ╰─── another ───╯
//
// Record, padded with zeros to a multiple of 8 bytes:
//
//	 0        4        8    9     10      12       16            24
//	┌────────┬────────┬────┬─────┬───────┬────────┬─────────────┬──────────┬─────┐
//	│ crc    │ length │type│flags│ epoch │ queue  │ sequence    │ body     │ pad │
//	│ u32    │ u32    │ u8 │ u8  │ u16   │ u32    │ u64         │ length B │     │
//	└────────┴────────┴────┴─────┴───────┴────────┴─────────────┴──────────┴─────┘
//
// The crc is a CRC-32C over everything behind it up to the end of the body. Its initial value is made of log,
// segment and offset: a record of another log, of an earlier life of a recycled file, or at another place never passes. Flag
// bit 0 marks records of the log itself; the other bits are reserved. The epoch counts the openings of the log and never goes back.
//
// Commit (a record with flag bit 0 and type 1, whose sequence is that of the next record):
//
//	24            32       36       40            48            56
//	┌─────────────┬────────┬────────┬─────────────┬─────────────┐
//	│ first seq   │ count  │ crcs   │ prev commit │ durable     │
//	│ u64         │ u32    │ u32    │ offset u64  │ below u64   │
//	└─────────────┴────────┴────────┴─────────────┴─────────────┘
//
// docs/formats/mq.md has the header, the footer and the rules for a reader.
//
// # After a crash
//
// Open looks only at the last segment. The groups count up to the first one that is not complete. If a commit
// behind that place says that the records there had been durable, the place is rot and Open refuses; otherwise it
// is the torn tail of a write that nobody was told about, and Open clears it before anything else is written. So
// that the last group is covered as well, the log writes a mark (a commit without records) when it becomes idle and
// when it is closed. Damage in the very last group of a log that died within 100 ms of writing it cannot be told from a torn
// tail.
//
// # Damage
//
// Verify reads all of a log and says what is damaged and which records that costs; Repair goes on without them, in one
// of two ways that its caller has to choose. What it gives up becomes a hole, a record of the log, and Read says so
// with a *LostError. A scrubber looks at the sealed segments of an open log all the time, slowly.
//
// # Concurrency
//
// Producers frame their records into a buffer under a mutex. Whoever is the flusher takes the buffer, closes it with
// a commit, writes, syncs and calls back: one sync for all who came meanwhile. That is a goroutine of the log, which
// waits up to Config.Gather for the producers that it just released, as they else would miss every other sync; or a
// producer in Write that finds itself alone. A second goroutine fills the next segment, a third scrubs. Read uses
// none of them.
package mq
