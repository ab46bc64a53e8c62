// Package credential reads and makes the tokens and keys of processes. It refuses a file
// that other users may read or write, and a token that can be guessed.
package credential
