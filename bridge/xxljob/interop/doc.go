// Package interop tests the bridge with an executor that others have written. It is a module of
// its own, so that the program does not depend on that executor.
package interop
