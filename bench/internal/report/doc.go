// Package report defines the output of every benchmark of this module: rows of numbers
// with their goals, and the machine on which they were measured.
package report
