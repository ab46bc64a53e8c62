// Package hosts has the scheduler's state of each host: its session, the runs
// that it holds, the time that these runs are expected to take, and the messages that wait
// for its stream ([Outbox]).
//
// A [Host] belongs to the loop of sched/core and is not safe for concurrent use; an Outbox
// is, because the loop fills it and the sender of the stream empties it.
package hosts
