// Package failure has the commands about errors of runs: which kinds there are, and what people do
// about each of them.
package failure
