// Package datadir owns the data directories of processes: their lock, their format
// version, the names of the files in them, and the check that a journal and a store in one
// directory fit together.
//
//	lock              held while a process uses the directory
//	form              the format version
//	token             of the administrator, made at the first start (mode 0600)
//	journal           the records, by mq
//	store             the rows that are derived from them, by store
//	modules           uploaded modules by digest
//	ingress           commands that were accepted and are applied later
//	units/NAME        store and modules of a further partition of a cluster
//	clustered         marks the directory of a cluster's server, whose journals are in etcd
//	restoring         marks a directory of which a restore is not complete
//	host              a host's id, spool, modules and compiled code
package datadir
