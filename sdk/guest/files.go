//go:build !wasip1

package guest

import "embed"

// Files holds the SDKs of all languages, for tools that create or pack a project. It does
// not exist in a guest. The Go files are this package.
//
//go:embed *.go c/wheelwork.h rust/wheelwork.rs zig/wheelwork.zig assemblyscript/wheelwork.ts
//go:embed js/wheelwork.js js/wheelwork.d.ts python/wheelwork.py python/wheelwork.pyi all:templates
var Files embed.FS
