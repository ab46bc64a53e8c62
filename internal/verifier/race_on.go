//go:build race

package verifier

// raceBuild reports whether the race detector is in this process: its shadow memory alone
// is more than any limit on data.
const raceBuild = true
