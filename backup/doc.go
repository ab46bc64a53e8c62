// Package backup is the format of a backup: named files in one stream, each with
// a checksum, and a sum over all of it at the end. What the files mean is not
// this room's business. It is written and read in one pass, so that it can go
// through a pipe; and a stream that was cut short, or changed anywhere, does not
// read as a whole one.
//
// docs/formats/backup.md has the bytes.
package backup
