// Package ingress accepts commands that cannot be applied at once and applies them later.
// A command that can never be applied ends as a dead letter that operators can see.
//
// An accepted command is durable in a message queue (mq/queue). The forwarder takes the
// commands of each job in order and applies them. A command that fails for now is retried
// with the delays of the queue. A command that can never succeed becomes a dead letter.
// The Queues service lists, shows, edits, replays and drops dead letters.
//
// A command takes effect once, however often it is tried. Applying and deleting a job are
// idempotent by nature. For a trigger, the idempotency key and the time of acceptance fix
// the id of the run; a trigger without a key gets one here.
package ingress
