// Package partition has the partitions of a cluster as one server has them: as their owner
// or as their standby.
//
// A [Replica] carries out the life of its partition, which package life decides. As a
// standby it applies the journal to its store, fetches the code of modules, and fetches the
// whole state from the owner if the journal does not reach back to the store. As the owner
// it runs the scheduler of the partition.
package partition
