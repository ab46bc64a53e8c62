// Package event reads definitions of event sources, and events of
// CloudEvents 1.0 in all three modes of HTTP. Source: the CloudEvents specification, version 1.0.2, its
// JSON format and its HTTP binding.
package event
