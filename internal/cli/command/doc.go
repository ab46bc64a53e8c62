// Package command builds commands: groups, arguments, flags, questions to the person at
// the terminal, and failures with a code.
package command
