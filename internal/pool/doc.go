// Package pool reuses the memory of objects that live for a short time: messages, batches
// and their buffers. [Pool] is for objects that the goroutine which takes them also
// returns, [Lists] for messages that one goroutine takes and another one returns.
//
// A released object belongs to the pool. With the build tag poison a pool never hands out
// a released object: it overwrites the object, so that code which still reads it gets
// values that no test expects, and it panics when an object is released twice or changes
// after its release. .ci/run tests the packages that have pools with this tag.
package pool
