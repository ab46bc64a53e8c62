// Package queue is a message queue on an mq.Log: topics, groups of consumers, delays, retries and dead letters.
// Bytes in, bytes out: it does not know what a message means.
//
//	q, err := queue.Open(queue.Config{Dir: "data/ingress"})
//	receipts, err := q.PublishSync(queue.Message{Topic: "orders", Key: "7", Body: b})
//	c, err := q.Consumer("orders", "billing")
//	ds, err := c.Fetch(ctx, 100)
//	err = c.Ack(ds, nil)
//
// # Promises
//
//   - A message is acknowledged to its producer when it is durable, and is then delivered to every group of its topic
//     at least once, until the group acknowledges it or it becomes a dead letter. An acknowledgement that is durable
//     is final. Failed attempts are counted over restarts; a delivery that died with its process is none.
//   - Messages of one key are delivered to a group one after the other, in the order of publishing. One that failed
//     holds back the later ones of its key, also over a restart; other keys go on. A delayed message joins its key
//     when it is due. After a restart the messages of a key that are due go in the order of publishing.
//   - Nothing is delivered before it is due by the wall clock, which is looked at once a second at least: a jump makes
//     a message early or late by the jump, and loses none.
//   - Deduplication uses the wall clock too. A second message within Config.DedupWindow, 10 minutes by default, and
//     among the last Config.DedupKeys keys, 65 536 by default, gets the receipt of the first, once that one is durable.
//   - Nothing is lost silently: what retention takes from a group is counted, and what cannot be delivered is a dead
//     letter, which stays, with its body, until somebody replays or drops it.
//
// # State
//
// One directory holds log/, an mq.Log with all that is true, and index/, which is derived from it:
//
//	message ─▶ log ─▶ consume queue ─▶ group: cursor, pending ─▶ Fetch ─▶ Ack, Nack ─▶ log
//	            │       (per topic)      │       ▲                               │
//	            └────────── fold ────────┴───────┴───────────────────────────────┘
//
// The state is the fold of the records. A message has a position in its topic, dense from 0, and a group is a cursor
// and the set of messages below it that are not done. Whatever is neither pending nor from the cursor on is done. A
// snapshot of the state is written every 5 seconds while it changes and at Close, so that Open reads only the log
// behind it. Before a segment of the log is trimmed, the state is also written into the log as a checkpoint, and the
// messages and dead letters of that segment that are needed still are copied forward. A segment stays while these
// are more than half of it.
//
// docs/formats/queue.md has the formats.
//
// # Memory
//
// A message that waits its turn costs nothing in memory but what the cache of the last messages keeps. One that is
// pending (delayed, retrying, behind another one of its key, with a consumer) costs about 150 bytes per group, up
// to Config.MaxPending; a dead letter costs as much, up to Config.MaxDead.
//
// # Concurrency
//
// Staging, under one lock, gives out positions and appends to the log; when records are durable the log's goroutine
// folds them into the state under a second lock, in their order, and then calls back. Acknowledgements and retries
// are folded at once: nobody is harmed when a crash forgets them.
package queue
