// Package report is the form in which every benchmark of this module says what
// it measured: rows of numbers with their goals, and the machine they are true of.
package report
