// Package datadir owns the data directories of processes: their lock, their format
// version, the names of what is in them, and the check that a journal and a store in one
// directory belong together.
package datadir
