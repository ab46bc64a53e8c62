// Package pluginv1 is the contract between a host and the plugins that it
// starts: the messages and the service of plugin.proto, generated. Plugins in Go
// use sdk/plugin; those in other languages generate code from plugin.proto.
package pluginv1
