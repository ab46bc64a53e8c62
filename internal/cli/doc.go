// Package cli is the command line of Wheelwork: it assembles the commands, reports their
// errors and decides the exit code. Each package below has the commands of one subject, or
// code that several subjects share.
package cli
