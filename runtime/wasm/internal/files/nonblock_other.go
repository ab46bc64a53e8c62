//go:build !unix

package files

// nonblock is 0 on systems whose directories contain no pipes.
const nonblock = 0
