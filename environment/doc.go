// Package environment plans how the definitions of an app become those of another environment, or of a
// folder of documents. An environment is a server and an app on it.
//
// A [Plan] follows from the definitions of both sides alone: what is created, changed and
// deleted, with the state of each object that it was made from, so that the server can refuse it when
// one of them has moved. An [Overlay] has what differs in one environment on purpose. The callers read the
// two sides and send the changes.
package environment
