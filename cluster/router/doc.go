// Package router finds the partition that answers a call, and the server that owns it.
//
// A [Router] takes the place of the services of a standalone server. It calls the
// partitions of this server, and merges the answers of several. Its [Forwarder] is the way
// to the owner of a partition: [Forwarder.Call] for requests between servers,
// [Forwarder.Invoke] and [Forwarder.Stream] for calls of clients that the [Interceptor]
// passes on, [Forwarder.Repeat] while a partition moves, over the connections in [Peers].
// A [Redirect] is the error that names another owner. The route of a method is an option
// of its definition (ADR 41).
package router
