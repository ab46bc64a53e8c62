// Package output prints what commands show: data as tables, JSON or YAML on standard
// output; notes and progress on standard error.
package output
