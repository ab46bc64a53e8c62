// Package serve has the commands that run processes: a server, a nameserver, a host, or all
// of them in one process.
package serve
