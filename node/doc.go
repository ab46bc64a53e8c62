// Package node composes processes from the other packages: a nameserver, a server, a host,
// or all three. It reads the configuration, opens the packages in order, wires them
// together, runs their roles, reports telemetry, and closes everything in reverse. It may
// import all other packages, and it is the only one that starts goroutines that live as
// long as the process.
package node
