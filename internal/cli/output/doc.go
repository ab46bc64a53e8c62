// Package output prints the results of commands: data as tables, JSON or YAML on standard
// output; notes and progress on standard error.
package output
