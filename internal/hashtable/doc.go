// Package hashtable has a hash table for tables of which a process has many entries and
// whose look-ups miss the processor caches: jobs by name, live runs and tasks by id,
// idempotency keys by hash. [Index] maps the hash of an entry to the number of the entry;
// [Table] is an index with the list of the entries.
//
// An index has no pointers, so the garbage collector does not scan it, and no keys: it has
// 8 bytes per cell, and at most 80 % of the cells are in use. The list of a table has the
// entries in the order in which they were added, which is about their order in memory, so
// the collector reads memory in sequence when it scans them (ADR 27).
//
// BenchmarkTable compares a table with a Go map of the same entries.
package hashtable
