//go:build race

package node

// raceBuild says that the race detector's shadow memory is in this process: it
// alone is more than any limit on data.
const raceBuild = true
