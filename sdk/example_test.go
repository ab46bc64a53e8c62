package sdk_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// serve starts a server for an example. Yours is the one that `wheelwork dev` prints.
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
