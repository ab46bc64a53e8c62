// Package archive makes backups of servers and restores them: it knows the files of a
// backup, whose format is that of package backup.
//
// A [Source] is what a backup is made of: one store for each partition, the ingress and the
// keys of a data directory. [Restore] makes a data directory from a backup, [Check] reads
// one to its end, and [Refill] replaces the store of a standby by that of the owner.
package archive
