// Package run has the commands that look at runs, read their logs, cancel and retry them.
package run
