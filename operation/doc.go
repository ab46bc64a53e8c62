// Package operation changes many runs or jobs of an app, beyond the call that asks for it.
//
// A [Registry] knows the operations of a partition: those that run and those that have ended.
// It bounds both. A [Service] is the gRPC service over a registry. It makes each change with a
// call to the API, through the [Runner] of its server, as the caller of the operation: the call
// is authorized by the permissions that the caller has at that time, and it is attributed and
// audited like any other call of the caller.
package operation
