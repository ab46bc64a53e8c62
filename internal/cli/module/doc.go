// Package module has the commands that make, build, test, upload, sign, grant and roll out
// modules.
package module
