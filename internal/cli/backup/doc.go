// Package backup has the commands that write backups and restore them.
package backup
