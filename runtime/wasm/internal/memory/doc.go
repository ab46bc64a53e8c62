// Package memory owns the linear memory of guests: it reserves the memory of each instance,
// enforces the limit of the instance, and counts the memory against the budget that all
// instances of an engine share.
package memory
