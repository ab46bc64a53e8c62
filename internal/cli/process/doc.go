// Package process has what the commands that start, prepare or repair servers share: flags,
// and the failure for a directory that is in use.
package process
