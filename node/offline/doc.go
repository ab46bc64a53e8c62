// Package offline works on the data directory of a server that does not run: it makes a
// backup of it, verifies and rebuilds its stores, and prepares it to become the first
// server of a cluster.
package offline
