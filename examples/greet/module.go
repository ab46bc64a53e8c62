// Package greet holds the prebuilt module of this example, so that
// `wheelwork dev` can show it without a compiler.
package greet

import _ "embed"

// Module is greet.wasm: see README.md for how it is built.
//
//go:embed greet.wasm
var Module []byte
