// Package mq is a durable log of records: append, read in order, trim. It gives no
// meaning to their bytes.
//
// It is the journal of a standalone server, the ingress of a server and the result spool
// of a host. The package owns the files of one directory per log. It defines their
// format, their writer, when a record counts as durable, and the state after a crash.
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
//   - Sequences are dense. The first record of a log is 1, and each following one is one
//     more, across restarts.
//   - The records of one Append are atomic: after a crash all of them are there or none.
//     They are in one segment.
//   - An acknowledged record is there after a crash, in order and once. If it is damaged,
//     Open or Read refuses with a *CorruptError that names file and offset. A record that
//     was not acknowledged may be there.
//   - The first failed write or sync is final. Every waiting append gets the error, no
//     later append is acknowledged, and the log stays readable. Only a new Open makes it
//     writable.
//   - A full disk is ErrFull at Append. Space is allocated and written before a segment
//     is used, so no store to a mapping can fault for lack of space.
//
// # Files
//
//	LOCK                   exclusive lock; holds the process id
//	0000000000000001.seg   segments, numbered without a gap; all but the last are sealed
//	0000000000000002.seg
//	0000000000000001.spare filled ahead or recycled; its content has no meaning
//	*.tmp                  unfinished; removed by Open
//	REPAIR                 a Repair was interrupted; Open refuses until it is repeated
//	quarantine/            originals of the files that a Repair replaced or removed
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
// The crc is a CRC-32C over all following bytes up to the end of the body. Its initial
// value depends on log, segment and offset. A record of another log, of an earlier use of
// a recycled file, or at another offset therefore never passes. Flag bit 0 marks records
// of the log itself; the other bits are reserved. The epoch counts the openings of the
// log and never decreases.
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
// Open checks only the last segment. Groups are valid up to the first incomplete one. If a
// later commit says that the records there were durable, the record is damaged and Open
// refuses. Otherwise it is the torn tail of a write that was never acknowledged, and Open
// clears it before it writes anything else.
//
// To cover the last group as well, the log writes an empty commit when it becomes idle and
// when it is closed. Damage in the last group of a log that died within 100 ms of writing it
// cannot be distinguished from a torn tail.
//
// # Damage
//
// Verify reads a whole log and reports the damage and the records that it costs. Repair
// continues without them, in one of two ways that its caller must choose. Records that it
// gives up become a hole, a record of the log, and Read reports them with a *LostError. A
// scrubber slowly rereads the sealed segments of an open log.
//
// # Concurrency
//
// Producers frame their records into a buffer under a mutex. The flusher takes the buffer,
// closes it with a commit, writes, syncs and calls back: one sync for all producers that came
// meanwhile. The flusher is a goroutine of the log, or a producer in Write that finds itself
// alone. The goroutine waits up to Config.Gather for the producers that it just released,
// which would otherwise miss every second sync. A second goroutine fills the next segment, a
// third scrubs, a fourth watches the files. Read uses none of them.
package mq
