// Package plugin runs tasks in plugins. A plugin is a program in any language that
// implements the gRPC service of api/plugin/v1. The operator of a host allows it by
// digest or by signature.
//
// The host starts its plugins with the handshake of go-plugin. Both sides use TLS, with
// certificates that they create for this one start. One stream carries all tasks of a
// plugin: many at once, and many in one message.
//
//	start ─▶ handshake ─▶ describe ─▶ ready ─▶ ended ─▶ back-off ─▶ start
//
// When a plugin ends, its tasks fail and can be retried; tasks of other plugins are not
// affected. The host kills a plugin that fails its health checks. It also kills a plugin
// in which a task ignores its cancellation for longer than Grace: only the end of the
// process proves that the handler has ended.
package plugin
