// Package conform tests whether a program is a worker. Its test replaces a server and
// sends the program all messages of a server, including the rare ones.
//
//	go test ./sdk/worker/conform                                    # sdk/worker, and examples/worker-node if there is node
//	go test ./sdk/worker/conform -worker "/path/to/program --flag"  # yours
//
// The program finds WHEELWORK_URL, WHEELWORK_TOKEN and WHEELWORK_SLOTS in its
// environment. It ends when it receives SIGTERM, and has the handlers that
// docs/work-protocol.md lists.
package conform
