// Package router finds the partition that answers a call, and the server that owns it.
//
// A [Router] takes the place of the services of a standalone server. It calls the
// partitions of this server, and merges the answers of several. A [Forwarder] passes on the
// calls that another server has to answer. [Peers] are the connections to the others. The
// route of a method is an option of its definition (ADR 41).
package router
