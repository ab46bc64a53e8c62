// Package config reads the settings of a process from its command line, its environment and
// a file. A flag has precedence over its variable, a variable over the file, and the file
// over the default.
package config
