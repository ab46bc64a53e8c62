// Package transfer carries the bytes of a module from one process to another. It owns the size
// of a message, the size that a receiver accepts, the least rate of an upload, and the check of
// the digest.
//
// Receive and Push are the two sides of an upload, Send and Fetch those of a module that a
// server has. A transfer that breaks off begins again: a receiver has nothing of it, because
// it stores only complete modules.
//
// Programs of other people send and receive with package sdk, which imports nothing but the
// API.
package transfer
