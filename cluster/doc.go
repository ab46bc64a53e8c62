// Package cluster is what a server knows of the servers and partitions of its cluster, and
// the decisions that follow from it.
//
// [View] is a watched copy of the cluster's table and of the owners of partitions in etcd.
// It is safe for concurrent use. A [Snapshot] is one moment of it. The [Balancer] runs on
// every server and decides on the elected one: which server owns which partition, which
// apps are spread over several, and which hosts work for which. The algorithms are those
// of package balance.
package cluster
