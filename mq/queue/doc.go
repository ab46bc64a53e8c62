// Package queue is a message queue on an mq.Log: topics, groups of consumers, delays,
// retries and dead letters. It gives no meaning to the bytes of a message.
//
//	q, err := queue.Open(queue.Config{Dir: "data/ingress"})
//	receipts, err := q.PublishSync(queue.Message{Topic: "orders", Key: "7", Body: b})
//	c, err := q.Consumer("orders", "billing")
//	ds, err := c.Fetch(ctx, 100)
//	err = c.Ack(ds, nil)
//
// # Promises
//
//   - The producer gets an acknowledgement when a message is durable. Every group of the
//     topic then gets the message at least once, until the group acknowledges it or it
//     becomes a dead letter. A durable acknowledgement of a group is final. Failed
//     attempts are counted across restarts; a delivery that ended with its process does
//     not count.
//   - A group gets the messages of one key one after the other, in the order of
//     publishing. A failed message holds back later ones of its key, also across a
//     restart; other keys continue. A delayed message joins its key when it is due. After
//     a restart the due messages of a key go in the order of publishing.
//   - No message is delivered before it is due by the wall clock, which is read at least
//     once a second. A jump of the clock makes a message early or late by the jump, and
//     loses none.
//   - Deduplication uses the wall clock too. A second message with a key within
//     Config.DedupWindow, 10 minutes by default, and among the last Config.DedupKeys
//     keys, 65 536 by default, gets the receipt of the first one, as soon as that one is
//     durable.
//   - No message is lost silently. Messages that retention takes from a group are
//     counted. An undeliverable message becomes a dead letter, which stays, with its
//     body, until an operator replays or drops it.
//
// # State
//
// One directory holds log/, an mq.Log with the whole truth, and index/, which is derived
// from it:
//
//	message ─▶ log ─▶ consume queue ─▶ group: cursor, pending ─▶ Fetch ─▶ Ack, Nack ─▶ log
//	            │       (per topic)      │       ▲                               │
//	            └────────── fold ────────┴───────┴───────────────────────────────┘
//
// The state is the fold of the records. A message has a position in its topic, dense from
// 0. A group is a cursor and the set of messages below it that are not done; a message
// below the cursor and not in that set is done.
//
// A snapshot of the state is written every 5 seconds while it changes, and at Close. Open
// therefore reads only the log behind it. Before a segment of the log is trimmed, the
// state is also written to the log as a checkpoint, and messages and dead letters of that
// segment that are still needed are copied forward. A segment stays while these are more
// than half of it.
//
// docs/formats/queue.md has the formats.
//
// # Memory
//
// A message that a group has not looked at takes no memory outside the cache of recent
// messages. A pending message (delayed, retrying, behind another one of its key, with a
// consumer) takes about 150 bytes per group, up to Config.MaxPending messages. A dead
// letter takes as much, up to Config.MaxDead letters.
//
// # Concurrency
//
// Staging, under one lock, assigns positions and appends to the log. When records are
// durable, the log's goroutine folds them into the state under a second lock, in order,
// and then calls back. Acknowledgements and retries are folded at once, because losing
// them in a crash only repeats a delivery.
package queue
