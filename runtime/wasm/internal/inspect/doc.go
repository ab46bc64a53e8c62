// Package inspect owns the checks of modules: it describes a module, refuses one that must
// not run, and rewrites one to the form that runs.
//
// A refusal wraps ErrInvalidModule and states the problem and the remedy in one sentence for
// the uploader. Everything here reads bytes that are not trusted.
package inspect
