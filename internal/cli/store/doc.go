// Package store has the commands that rebuild and repair the store of a stopped server.
package store
