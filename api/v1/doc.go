// Package apiv1 holds the messages and services between processes, and the
// records and rows that they leave on disk. Everything but this file is
// generated from the .proto files beside it by tools/protogen.
//
// What faces people (job.proto, module.proto, cluster.proto) is made to be read
// as JSON: states and durations are words, inputs and outputs are texts. What
// hosts and servers say to each other (work.proto) is made to be small.
// journal.proto is a format: fields are added, never renumbered or reused.
package apiv1
