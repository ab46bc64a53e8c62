// Package ingress takes commands in when nobody can apply them at once, and
// sees to it that each is applied or ends where people see it.
//
// A command that is accepted is durable in a message queue (mq/queue). A
// forwarder takes the commands out, in the order of each job, and applies them.
// What cannot be applied now is tried again on the levels of the queue; what
// never can be becomes a dead letter, which the Queues service lists, shows,
// edits, replays and drops.
//
// A command is applied once however often it is tried: an apply and a delete by
// nature, a trigger because its idempotency key, which gets one here when it has
// none, and the time of its acceptance fix the id of its run.
package ingress
