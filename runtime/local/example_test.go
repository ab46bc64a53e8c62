package local_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
)

// A write with the version that was read fails if another writer was faster.
func ExampleServices_Put() {
	var services local.Services
	ctx, task := context.Background(), &runtime.Task{App: "shop", RunID: "run-1"}
	version, err := services.Put(ctx, task, "counters", "orders", []byte("1"), 0) // 0: the key must be new
	if err != nil {
		log.Fatal(err)
	}
	if _, err := services.Put(ctx, task, "counters", "orders", []byte("2"), version); err != nil {
		log.Fatal(err)
	}

	_, err = services.Put(ctx, task, "counters", "orders", []byte("3"), version)
	fmt.Println("conflict:", errors.Is(err, runtime.ErrConflict))
	fmt.Println(string(services.Entries("shop", "counters")["orders"].Value))
	// Output:
	// conflict: true
	// 2
}

// A test of a handler checks the runs that it enqueued. Two calls with the same key
// enqueue one run.
func ExampleServices_Enqueue() {
	var services local.Services
	task := &runtime.Task{App: "shop", RunID: "run-1"}
	for range 2 {
		id, err := services.Enqueue(context.Background(), task, runtime.Submit{Job: "invoice", Input: []byte("42"), Key: "order-42"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id)
	}
	for _, s := range services.Submits() {
		fmt.Println(s.App, s.Job, string(s.Input))
	}
	// Output:
	// local-1
	// local-1
	// shop invoice 42
}
