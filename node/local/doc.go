// Package local runs a whole cluster as processes of this machine: a nameserver, servers
// with a member of etcd in each, and hosts. A process that ends by itself is started again.
package local
