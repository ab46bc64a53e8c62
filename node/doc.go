// Package node is one process and its roles: nameserver, server, host, or all
// three. It opens the other packages in order, wires them together and closes them in
// reverse. It may import all other packages, and it is the only one that starts
// goroutines that live as long as the process.
//
//	<data>/lock       held while a process uses the directory
//	<data>/token      of the administrator, made at the first start (mode 0600)
//	<data>/journal    the records, by mq
//	<data>/store      the rows that are derived from them, by store
//	<data>/modules    uploaded modules by digest
//	<data>/host       a host's id, spool, modules and compiled code
package node
