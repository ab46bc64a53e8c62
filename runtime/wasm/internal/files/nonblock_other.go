//go:build !unix

package files

// nonblock is nothing where directories hold no pipes.
const nonblock = 0
