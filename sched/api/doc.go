// Package api has the gRPC services of one partition's scheduler. A service checks what
// needs no state, passes a function to the loop (sched/core), which decides, and turns the
// result into a message. Lists are read from the store. [Services] also has the calls that
// the servers of other partitions make.
package api
