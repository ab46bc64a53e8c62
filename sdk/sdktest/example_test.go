package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// start serves on a port that the system chooses, and returns a client.
func start(server *sdktest.Server, opt sdk.Options) *sdk.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l) //nolint:errcheck // ends with the server
	client, err := sdk.Dial(context.Background(), "http://"+l.Addr().String(), opt)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// register is a function of a program under test: it starts a run for a user.
func register(ctx context.Context, client *sdk.Client, user string) error {
	_, err := client.Trigger(ctx, sdk.Trigger{Job: "welcome", Input: []byte(user), Key: user})
	return err
}

// A test of a program that triggers runs checks the jobs and runs that the server accepted.
func Example() {
	server := sdktest.NewServer(sdktest.Config{})
	defer server.Close()
	client := start(server, sdk.Options{})
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "welcome", Handler: &sdk.Handler{Module: "welcome@1"}}); err != nil {
		log.Fatal(err)
	}

	for _, user := range []string{"ada", "grace", "ada"} {
		if err := register(ctx, client, user); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(server.Jobs(), "job,", server.Runs(), "runs")
	// Output: 1 job, 2 runs
}

// Handle executes runs. Its log lines become the log of the run.
func ExampleConfig_handle() {
	server := sdktest.NewServer(sdktest.Config{
		Handle: func(_ context.Context, run *apiv1.Run, log func(line string)) (string, error) {
			if run.GetInput() == "" {
				return "", errors.New("there is no input")
			}
			log("got " + run.GetInput())
			return strings.ToUpper(run.GetInput()), nil
		},
	})
	defer server.Close()
	client := start(server, sdk.Options{})
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "shout", Handler: &sdk.Handler{Module: "shout@1"}}); err != nil {
		log.Fatal(err)
	}

	for _, input := range []string{"hello", ""} {
		run, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: "shout", Input: []byte(input)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(run.GetState() + ": " + run.GetOutput() + run.GetError())
		for line, err := range client.Logs(ctx, sdk.LogQuery{Run: run.GetId()}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("log:", line.GetText())
		}
	}
	// Output:
	// succeeded: HELLO
	// log: got hello
	// failed: there is no input
}

// A job of a native function runs the function, as in a worker.
func ExampleConfig_handlers() {
	type order struct{ Price, Pieces int }
	bill := worker.HandleJSON("bill", func(_ context.Context, t *worker.Task, o order) (int, error) {
		t.Logf("%d pieces", o.Pieces)
		return o.Price * o.Pieces, nil
	})
	server := sdktest.NewServer(sdktest.Config{Handlers: []worker.Handler{bill}})
	defer server.Close()
	client := start(server, sdk.Options{})
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "bill", Handler: &sdk.Handler{Name: "native:bill"}}); err != nil {
		log.Fatal(err)
	}

	run, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: "bill", Input: []byte(`{"Price": 7, "Pieces": 6}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.GetState(), run.GetOutput())
	for line, err := range client.Logs(ctx, sdk.LogQuery{Run: run.GetId()}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(line.GetLevel(), line.GetText())
	}
	// Output:
	// succeeded 42
	// info 6 pieces
}

// With a clock of its own, the server fires the schedules of a week in an instant.
func ExampleServer_Advance() {
	report := worker.Handle("report", func(_ context.Context, t *worker.Task) ([]byte, error) {
		fmt.Println(t.PlannedAt.UTC().Format("Mon 15:04"))
		return nil, nil
	})
	server := sdktest.NewServer(sdktest.Config{
		Handlers: []worker.Handler{report},
		Start:    time.Date(2026, 3, 6, 8, 0, 0, 0, time.UTC), // a Friday
	})
	defer server.Close()
	client := start(server, sdk.Options{})
	defer client.Close()
	job := &sdk.Job{Name: "report", Handler: &sdk.Handler{Name: "native:report"}, Schedule: &sdk.Schedule{Cron: "0 9 * * 1-5"}}
	if _, err := client.Apply(context.Background(), job); err != nil {
		log.Fatal(err)
	}

	server.Advance(5 * 24 * time.Hour)
	// Output:
	// Fri 09:00
	// Mon 09:00
	// Tue 09:00
}

// With a token, the server refuses calls that do not carry it.
func ExampleConfig_token() {
	server := sdktest.NewServer(sdktest.Config{Token: "right"})
	defer server.Close()

	for _, token := range []string{"wrong", "right"} {
		client := start(server, sdk.Options{Token: token})
		_, err := client.Overview(context.Background(), "")
		fmt.Println(token, "refused:", errors.Is(err, sdk.ErrUnauthenticated))
		client.Close() //nolint:errcheck // the call has returned
	}
	// Output:
	// wrong refused: true
	// right refused: false
}

// An error of After loses an answer, as a network does: the command was executed, and the
// client sends it again. The client gives each trigger a key, so the repeated command starts
// no second run.
func ExampleConfig_after() {
	var lose atomic.Bool
	server := sdktest.NewServer(sdktest.Config{
		After: func(*apiv1.ProduceRequest) error {
			if lose.CompareAndSwap(true, false) {
				return status.Error(codes.Unavailable, "the connection is lost")
			}
			return nil
		},
	})
	defer server.Close()
	client := start(server, sdk.Options{})
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Apply(ctx, &sdk.Job{Name: "welcome", Handler: &sdk.Handler{Module: "welcome@1"}}); err != nil {
		log.Fatal(err)
	}

	lose.Store(true)
	answer, err := client.Trigger(ctx, sdk.Trigger{Job: "welcome"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Result, "-", server.Runs(), "run")
	// Output: duplicate - 1 run
}
