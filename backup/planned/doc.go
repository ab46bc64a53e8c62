// Package planned makes the backups of a server by a schedule, and proves each with a drill:
// it restores the backup and opens the result as a server would.
//
// A [Maker] writes to one directory. A file there has its final name only after all of it was
// written, synced and read back. Older backups are removed after that, and files of other
// names never. Of the servers of a cluster one makes the backups, as the [Board] says, which
// also keeps the [State]: ADR 65.
package planned
