// Package runview shows runs and waits for their end, for the commands that start runs and
// those that look at them.
package runview
