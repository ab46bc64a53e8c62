// Package command runs the programs that the operator of a server has declared for alerts.
//
// A channel names a program, and never its path: a person who may define channels must not
// choose what the server executes. A program receives the notification on its standard
// input, has none of the server's environment beside a few variables of the system, and
// ends with the server. Its time, its input and the size of its output are bounded.
package command
