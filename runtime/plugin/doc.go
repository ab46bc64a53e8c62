// Package plugin runs tasks in plugins: programs in any language that the
// operator of a host allows by their digest or by a signature, and that speak
// the gRPC service of api/plugin/v1.
//
// A plugin is started with its host, by the handshake of go-plugin, and speaks
// TLS with certificates that both sides made for this one start. One stream
// carries all its tasks, many at once and many in a message.
//
//	start ─▶ handshake ─▶ describe ─▶ ready ─▶ ended ─▶ back-off ─▶ start
//
// A plugin that ends takes the tasks it had with it: these fail and can be
// tried again, others are not touched. It is killed when it does not answer the
// health check, and when a task has ignored its cancellation for too long: only
// then is it certain that the handler has ended.
package plugin
