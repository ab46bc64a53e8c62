// Package backup defines the format of a backup: named files in one stream. Each file has
// a checksum, and the end of the stream has a checksum over everything before it. The
// meaning of the files is left to the caller.
//
// A backup is written and read in one pass, so it can go through a pipe. A Reader never
// accepts a stream that was cut or changed as complete.
//
// docs/formats/backup.md describes the bytes.
package backup
