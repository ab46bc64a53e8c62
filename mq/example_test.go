package mq_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/wheelworkhq/wheelwork/mq"
)

// open opens the log of a directory with small segments.
func open(dir string) *mq.Log {
	l, err := mq.Open(mq.Config{Dir: dir, SegmentBytes: 64 << 10, ReserveBytes: -1, Writer: "pwrite"})
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func tempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}

// Write returns when its records are synced. They are present when the log is opened
// again.
func Example() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	l := open(dir)
	first, err := l.Write([]mq.Record{{Queue: 7, Type: 1, Body: []byte("created")}, {Queue: 7, Type: 2, Body: []byte("paid")}})
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	l = open(dir)
	defer l.Close()
	err = l.Read(first, func(e mq.Entry) error {
		fmt.Println(e.Seq, e.Queue, e.Type, string(e.Body))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 7 1 created
	// 2 7 2 paid
}

// Append does not wait for the disk. The log calls the function when the records are
// durable; appends that arrive meanwhile share a sync.
func ExampleLog_Append() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	l := open(dir)
	defer l.Close()

	durable := make(chan error, 3)
	for i := range 3 {
		if _, err := l.Append([]mq.Record{{Body: fmt.Appendf(nil, "record %d", i)}}, func(err error) { durable <- err }); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		if err := <-durable; err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("durable below", l.Durable())
	// Output: durable below 4
}

// Trim removes whole segments. A later Read of removed records gets ErrTrimmed.
func ExampleLog_Trim() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	l := open(dir)
	defer l.Close()
	body := make([]byte, 20_000)
	for range 10 {
		if _, err := l.Write([]mq.Record{{Body: body}}); err != nil {
			log.Fatal(err)
		}
	}

	if err := l.Trim(8); err != nil {
		log.Fatal(err)
	}
	err := l.Read(1, func(mq.Entry) error { return nil })
	fmt.Println("trimmed:", errors.Is(err, mq.ErrTrimmed), l.First() > 1 && l.First() <= 8)
	// Output: trimmed: true true
}

// Only one process at a time has a log open.
func ExampleOpen_locked() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	l := open(dir)
	defer l.Close()

	_, err := mq.Open(mq.Config{Dir: dir})
	fmt.Println("locked:", errors.Is(err, mq.ErrLocked))
	// Output: locked: true
}

// Verify reads the log in a directory that is not open and reports its state.
func ExampleVerify() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	l := open(dir)
	if _, err := l.Write([]mq.Record{{Body: []byte("one")}, {Body: []byte("two")}}); err != nil {
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	report, err := mq.Verify(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Records, "records, sound:", report.Sound())
	// Output: 2 records, sound: true
}
