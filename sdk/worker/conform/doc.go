// Package conform tests whether a program is a worker: its test stands in for a
// server and says to the program what servers say, also what they rarely say.
//
//	go test ./sdk/worker/conform                                    # sdk/worker, and examples/worker-node if there is node
//	go test ./sdk/worker/conform -worker "/path/to/program --flag"  # yours
//
// The program finds WHEELWORK_URL, WHEELWORK_TOKEN and WHEELWORK_SLOTS in its
// environment, ends when it gets SIGTERM, and has the handlers that
// docs/work-protocol.md lists.
package conform
