// Package xxljob lets executors of XXL-JOB execute runs of Wheelwork: it is their admin. An
// executor registers, and the bridge becomes a worker with the function
// xxl-job.APPNAME for its group. An attempt of a run is one request to an executor, or to
// each of them, and the callback of the executor is the result of the attempt.
//
// Each attempt has a file until its result is known. A bridge that starts again finds the
// executors that still work, and waits for their callbacks instead of starting them twice.
//
// The protocol is described in docs/xxl-job.md. This package shares no code with XXL-JOB.
package xxljob
