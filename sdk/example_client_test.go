package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// connected returns a client of a server that has the job "echo", whose runs put
// out their input.
func connected() (client *sdk.Client, stop func()) {
	address, stopServer := serve()
	ctx := context.Background()
	client, err := sdk.Dial(ctx, address, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Apply(ctx, &sdk.Job{Name: "echo", Handler: &sdk.Handler{Module: "echo@1"}}); err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close() //nolint:errcheck // every answer has come
		stopServer()
	}
}

// Dial returns when the server has answered. It does not check the token.
func ExampleDial() {
	address, stop := serve()
	defer stop()

	client, err := sdk.Dial(context.Background(), address, sdk.Options{Token: os.Getenv("WHEELWORK_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println("connected to version", client.Version().GetVersion())
	// Output: connected to version sdktest
}

// Applying the same definition again changes nothing.
func ExampleClient_Apply() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()

	job := &sdk.Job{Name: "report", Handler: &sdk.Handler{Module: "report@1"}, Schedule: &sdk.Schedule{Cron: "0 9 * * 1-5", Zone: "Europe/Berlin"}}
	for _, module := range []string{"report@1", "report@1", "report@2"} {
		job.Handler.Module = module
		answer, err := client.Apply(ctx, job)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(module, answer.Result)
	}
	// Output:
	// report@1 created
	// report@1 unchanged
	// report@2 updated
}

// A change of a definition is refused if another caller changed the job after it was read.
func ExampleClient_ApplyIf() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()

	mine, err := client.Job(ctx, "", "echo")
	if err != nil {
		log.Fatal(err)
	}
	theirs := &sdk.Job{Name: "echo", Handler: &sdk.Handler{Module: "echo@2"}}
	if _, err := client.Apply(ctx, theirs); err != nil {
		log.Fatal(err)
	}

	_, err = client.ApplyIf(ctx, &sdk.Job{Name: "echo", Handler: &sdk.Handler{Module: "echo@3"}}, mine.GetEtag())
	fmt.Println("changed meanwhile:", errors.Is(err, sdk.ErrChanged))
	// Output: changed meanwhile: true
}

func ExampleClient_TriggerAndWait() {
	client, stop := connected()
	defer stop()

	run, err := client.TriggerAndWait(context.Background(), sdk.Trigger{Job: "echo", Input: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	if run.GetState() != sdk.Succeeded {
		log.Fatalf("run %s %s: %s", run.GetId(), run.GetState(), run.GetError())
	}
	fmt.Println(run.GetOutput())
	// Output: hello
}

// A key makes a trigger idempotent: the second one finds the run of the first.
func ExampleClient_Trigger_key() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()

	var runs []string
	for range 2 {
		answer, err := client.Trigger(ctx, sdk.Trigger{Job: "echo", Key: "order-4711"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Result)
		runs = append(runs, answer.RunID)
	}
	fmt.Println("the same run:", runs[0] == runs[1])
	// Output:
	// accepted
	// duplicate
	// the same run: true
}

// Watch yields a run at each change. The last one is terminal.
func ExampleClient_Watch() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()

	answer, err := client.Trigger(ctx, sdk.Trigger{Job: "echo"})
	if err != nil {
		log.Fatal(err)
	}
	var last *sdk.Run
	for run, err := range client.Watch(ctx, "", answer.RunID) {
		if err != nil {
			log.Fatal(err)
		}
		last = run
	}
	fmt.Println(last.GetJob(), last.GetState())
	// Output: echo succeeded
}

// The sentinels distinguish the kinds of errors.
func ExampleError() {
	client, stop := connected()
	defer stop()

	_, err := client.Job(context.Background(), "", "missing")
	switch {
	case errors.Is(err, sdk.ErrNotFound):
		fmt.Println("not found:", err)
	case err != nil:
		log.Fatal(err)
	}
	// Output: not found: get job missing: job missing is not in app default
}

// Labels select jobs for one action. DryRun only counts them.
func ExampleClient_Bulk() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()
	for _, name := range []string{"a", "b", "c"} {
		team := map[string]string{"team": "billing"}
		if _, err := client.Apply(ctx, &sdk.Job{Name: name, Handler: &sdk.Handler{Module: "m@1"}, Labels: team}); err != nil {
			log.Fatal(err)
		}
	}

	for _, dry := range []bool{true, false} {
		done, err := client.Bulk(ctx, sdk.Bulk{Action: sdk.BulkPause, Labels: map[string]string{"team": "billing"}, DryRun: dry})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(done.Matched, "selected,", done.Changed, "paused")
	}
	// Output:
	// 3 selected, 0 paused
	// 3 selected, 3 paused
}

// A run that has ended can be done again. The new run has the same input.
func ExampleClient_RetryRun() {
	client, stop := connected()
	defer stop()
	ctx := context.Background()
	first, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: "echo", Input: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}

	again, err := client.RetryRun(ctx, "", first.GetId())
	if err != nil {
		log.Fatal(err)
	}
	second, err := client.Wait(ctx, "", again.GetId())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.GetState(), second.GetOutput(), second.GetCause() == first.GetId())
	// Output: succeeded hello true
}

// Job documents are YAML or JSON. InOrder yields each job after the jobs that it names.
func ExampleReadJobs() {
	jobs, err := sdk.ReadJobs(strings.NewReader(`
name: bill
handler: {module: bill@1}
dependency: {jobs: [totals]}
---
name: totals
handler: {module: totals@1}
schedule: {every: 30s}
`), ".")
	if err != nil {
		log.Fatal(err)
	}
	given := func(yield func(*sdk.Job, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}
	for job, err := range sdk.InOrder(given, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.GetName())
	}
	// Output:
	// totals
	// bill
}

// What WriteJobs writes can be kept, compared and applied elsewhere.
func ExampleWriteJobs() {
	client, stop := connected()
	defer stop()
	job, err := client.Job(context.Background(), "", "echo")
	if err != nil {
		log.Fatal(err)
	}
	if err := sdk.WriteJobs(os.Stdout, job); err != nil {
		log.Fatal(err)
	}
	// Output:
	// app: default
	// name: echo
	// handler:
	//   module: echo@1
}
