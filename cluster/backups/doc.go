// Package backups makes backups of a cluster: of all partitions, whichever servers own
// them, or of one that this server owns.
package backups
