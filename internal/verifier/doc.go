// Package verifier decides whether an uploaded module or script is accepted. It parses,
// checks and compiles the upload in a child process with limits, see [Config].
package verifier
