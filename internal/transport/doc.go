// Package transport is the port of a process: it accepts connections within [Limits],
// with or without TLS, tells gRPC from HTTP by the first bytes, and hands calls and
// requests to a [Server] after a guard has seen their headers.
//
// It also dials other processes of an installation, see [Dial].
package transport
