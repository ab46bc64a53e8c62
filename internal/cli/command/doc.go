// Package command builds commands: groups, arguments, flags, questions at the
// terminal, and failures with a code.
package command
