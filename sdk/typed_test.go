package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"testing"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

type order struct{ Price, Pieces int }

type bill struct {
	Total int `json:"total"`
}

// biller is a server with the job bill, whose handler is typed too, and a client of it.
func biller() (client *sdk.Client, stop func()) {
	server := sdktest.NewServer(sdktest.Config{Handlers: []worker.Handler{
		worker.HandleJSON("bill", func(_ context.Context, _ *worker.Task, o order) (bill, error) {
			if o.Pieces == 0 {
				return bill{}, worker.WithCode(errors.New("there is nothing to bill"), "empty")
			}
			return bill{o.Price * o.Pieces}, nil
		}),
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l) //nolint:errcheck // ends with the server
	client, err = sdk.Dial(context.Background(), "http://"+l.Addr().String(), sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Apply(context.Background(), &sdk.Job{Name: "bill", Handler: &sdk.Handler{Name: "native:bill"}}); err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close() //nolint:errcheck // every answer has come
		server.Close()
	}
}

// The input and the output of a run are Go types.
func ExampleCall() {
	client, stop := biller()
	defer stop()

	b, err := sdk.Call[order, bill](context.Background(), client, sdk.Trigger{Job: "bill"}, order{Price: 7, Pieces: 6})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Total)

	var failed *sdk.RunError
	_, err = sdk.Call[order, bill](context.Background(), client, sdk.Trigger{Job: "bill"}, order{})
	fmt.Println(errors.As(err, &failed), failed.Run.GetCode())
	// Output:
	// 42
	// true empty
}

// The input of a trigger is a Go type, and the key makes it safe to repeat.
func ExampleEnqueue() {
	client, stop := biller()
	defer stop()

	for range 2 {
		answer, err := sdk.Enqueue(context.Background(), client, sdk.Trigger{Job: "bill", Key: "order-17"}, order{Price: 7, Pieces: 6})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Result)
	}
	// Output:
	// accepted
	// duplicate
}

// TestTypedRefusals checks that a trigger with an input of its own, an input that is no
// JSON and an output that does not fit are errors.
func TestTypedRefusals(t *testing.T) {
	client, stop := biller()
	defer stop()
	if _, err := sdk.Enqueue(t.Context(), client, sdk.Trigger{Job: "bill", Input: []byte("{}")}, order{}); err == nil {
		t.Error("a trigger with two inputs was accepted")
	}
	if _, err := sdk.Enqueue(t.Context(), client, sdk.Trigger{Job: "bill"}, math.Inf(1)); err == nil {
		t.Error("an input that is no JSON was accepted")
	}
	if _, err := sdk.Call[order, []string](t.Context(), client, sdk.Trigger{Job: "bill"}, order{1, 1}); err == nil {
		t.Error("an output of another type was accepted")
	}
	if _, err := sdk.Call[order, bill](t.Context(), client, sdk.Trigger{Job: "none"}, order{1, 1}); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("a job that does not exist: %v", err)
	}
}
