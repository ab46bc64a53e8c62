package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// serve starts a server for an example. In a program, use the address that `wheelwork
// dev` prints.
func serve() (address string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := sdktest.NewServer(sdktest.Config{})
	go server.Serve(l) //nolint:errcheck // ends with the server
	return "http://" + l.Addr().String(), server.Close
}

func Example() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()

	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	answer, err := client.Apply(ctx, &sdk.Job{
		Name:     "totals",
		Handler:  &sdk.Handler{Module: "totals@1"},
		Schedule: &sdk.Schedule{Every: "30s"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Result)

	started, err := client.Trigger(ctx, sdk.Trigger{Job: "totals", Input: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	run, err := client.Wait(ctx, "", started.RunID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.GetState(), run.GetOutput())
	// Output:
	// created
	// succeeded hello
}

// Goroutines that call at the same time share messages on one stream.
func ExampleClient_Apply_concurrently() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var callers sync.WaitGroup
	for i := range 100 {
		callers.Go(func() {
			job := &sdk.Job{Name: fmt.Sprintf("job-%03d", i), Handler: &sdk.Handler{Module: "totals@1"}}
			if _, err := client.Apply(ctx, job); err != nil {
				log.Print(err)
			}
		})
	}
	callers.Wait()

	n := 0
	for _, err := range client.Jobs(ctx, sdk.JobQuery{Prefix: "job-"}) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "jobs")
	// Output: 100 jobs
}

// One goroutine sends many triggers and handles each answer without waiting for it.
func ExamplePending_Then() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "bill", Handler: &sdk.Handler{Module: "bill@1"}}); err != nil {
		log.Fatal(err)
	}

	var accepted, duplicates, failed atomic.Int64
	for i := range 1000 {
		order := fmt.Sprint("order ", i%900) // 100 triggers are duplicates
		client.TriggerAsync(ctx, sdk.Trigger{Job: "bill", Input: []byte(order), Key: order}).Then(func(a sdk.Answer, err error) {
			switch {
			case err != nil:
				failed.Add(1)
			case a.Result == sdk.Duplicate:
				duplicates.Add(1)
			default:
				accepted.Add(1)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(accepted.Load(), "accepted,", duplicates.Load(), "duplicates,", failed.Load(), "failed")
	// Output: 900 accepted, 100 duplicates, 0 failed
}

// A program that must not wait refuses work when the client is full. It distinguishes a
// command that was not executed from one that may have been.
func ExampleClient_TryTrigger() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()
	// A list of servers is one address, separated by commas.
	client, err := sdk.Dial(ctx, address, sdk.Options{MaxPending: 1000, Timeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	pending, err := client.TryTrigger(ctx, sdk.Trigger{Job: "bill", Key: "order 1"})
	if errors.Is(err, sdk.ErrFull) {
		fmt.Println("busy: try again later")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	_, err = pending.Wait(ctx)
	switch {
	case errors.Is(err, sdk.ErrUnknown):
		fmt.Println("it may have been carried out: trigger it again with the same key")
	case err != nil:
		fmt.Println("it was not carried out:", err)
	}
	// Output: it was not carried out: job bill is not in app default
}
