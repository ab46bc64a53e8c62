// Package process has the flags that commands about server processes share, and the failure
// for a directory that a process uses.
package process
