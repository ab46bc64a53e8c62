package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
)

// open opens a queue in a new directory.
func open(cfg queue.Config) (q *queue.Queue, stop func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	cfg.Dir = dir
	cfg.Log = mq.Config{SegmentBytes: 1 << 20, ReserveBytes: -1, Writer: "pwrite"}
	if q, err = queue.Open(cfg); err != nil {
		log.Fatal(err)
	}
	return q, func() {
		if err := errors.Join(q.Close(), os.RemoveAll(dir)); err != nil {
			log.Print(err)
		}
	}
}

func publish(q *queue.Queue, messages ...queue.Message) []queue.Receipt {
	receipts, err := q.PublishSync(messages...)
	if err != nil {
		log.Fatal(err)
	}
	return receipts
}

func join(q *queue.Queue, topic, group string) *queue.Consumer {
	c, err := q.Consumer(topic, group)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func fetch(c *queue.Consumer) []queue.Delivery {
	deliveries, err := c.Fetch(context.Background(), 10)
	if err != nil {
		log.Fatal(err)
	}
	return deliveries
}

// Each group of a topic gets every message.
func Example() {
	q, stop := open(queue.Config{})
	defer stop()
	publish(q, queue.Message{Topic: "orders", Body: []byte("order 1")}, queue.Message{Topic: "orders", Body: []byte("order 2")})

	for _, group := range []string{"billing", "shipping"} {
		c := join(q, "orders", group)
		deliveries := fetch(c)
		for _, d := range deliveries {
			fmt.Println(group, string(d.Body))
		}
		if err := c.Ack(deliveries, nil); err != nil {
			log.Fatal(err)
		}
		c.Close()
	}
	// Output:
	// billing order 1
	// billing order 2
	// shipping order 1
	// shipping order 2
}

// A failed message is delivered again after a delay, and becomes a dead letter after the
// last attempt. Replay returns it to its group.
func ExampleConsumer_Nack() {
	dead := make(chan queue.Dead, 1)
	q, stop := open(queue.Config{
		Levels:      []time.Duration{time.Millisecond},
		MaxAttempts: 2,
		OnDead:      func(d queue.Dead) { dead <- d },
	})
	defer stop()
	publish(q, queue.Message{Topic: "orders", Body: []byte("order 1")})
	c := join(q, "orders", "billing")
	defer c.Close()

	for range 2 {
		d := fetch(c)[0]
		fmt.Println("attempt", d.Attempt)
		if err := c.Nack(d, errors.New("no such customer"), false); err != nil {
			log.Fatal(err)
		}
	}
	letter := <-dead
	fmt.Println("dead after", letter.Attempts, letter.Reason, "-", letter.LastError)

	n, err := q.Replay(queue.Filter{IDs: []uint64{letter.ID}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("replayed", n, "-", string(fetch(c)[0].Body))
	// Output:
	// attempt 1
	// attempt 2
	// dead after 2 attempts - no such customer
	// replayed 1 - order 1
}

// Messages of one key are delivered one after the other. Other keys continue.
func ExampleMessage_key() {
	q, stop := open(queue.Config{})
	defer stop()
	publish(q,
		queue.Message{Topic: "orders", Key: "ada", Body: []byte("ada 1")},
		queue.Message{Topic: "orders", Key: "ada", Body: []byte("ada 2")},
		queue.Message{Topic: "orders", Key: "grace", Body: []byte("grace 1")})
	c := join(q, "orders", "billing")
	defer c.Close()

	for range 2 {
		deliveries := fetch(c)
		fmt.Println("fetched", len(deliveries))
		for _, d := range deliveries {
			fmt.Println(string(d.Body))
		}
		if err := c.Ack(deliveries, nil); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// fetched 2
	// ada 1
	// grace 1
	// fetched 1
	// ada 2
}

// A message with a deduplication key that was already published gets the receipt of the
// first message.
func ExampleReceipt() {
	q, stop := open(queue.Config{})
	defer stop()

	order := queue.Message{Topic: "orders", Dedup: "4711", Body: []byte("order")}
	first, second := publish(q, order)[0], publish(q, order)[0]
	fmt.Println(first.Duplicate, second.Duplicate, first.ID == second.ID)
	// Output: false true true
}
