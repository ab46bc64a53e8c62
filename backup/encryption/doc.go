// Package encryption encrypts backups with age, for the owners of identities, and opens
// them again. It passes bytes through as they come, so a backup is never in memory.
package encryption
