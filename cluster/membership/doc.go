// Package membership is the part that a server takes in its cluster.
//
// A [Member] reports its server in etcd, which makes it a candidate for ownership. Its
// [Service] shows the cluster, changes what operators decide, and takes slots, copies and
// commands from other servers. Its [Nameserver] tells hosts and clients the owners. A
// [Standalone] server refuses what needs a cluster.
package membership
