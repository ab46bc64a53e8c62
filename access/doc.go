// Package access decides which caller may call which method.
//
// A [Guard] maps tokens to a [Role], and methods to the permission that their proto
// definition names. It denies by default: a method without a permission is refused for
// every caller. A server that passes a call on sends the role that it found for the
// original caller, see [ActingHeader].
package access
