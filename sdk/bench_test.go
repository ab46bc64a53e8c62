package sdk_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// echo answers every command without executing it.
type echo struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedProducerServer
}

func (echo) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (echo) Produce(stream grpc.BidiStreamingServer[apiv1.ProduceRequest, apiv1.ProduceResponse]) error {
	done := &apiv1.CommandResult{Result: "accepted", RunId: "01K4W3Z9G0XQ2M7T5B8C6D1EFH"}
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is done
		}
		answer := &apiv1.ProduceResponse{Number: r.GetNumber()}
		for range r.GetCommands() {
			answer.Results = append(answer.Results, done)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// BenchmarkTrigger measures the producer alone. Each caller triggers one run after
// another on one client, and a server in the same process answers at once. Client and
// server share the processors.
func BenchmarkTrigger(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			c := echoed(b)
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for range share(b.N, callers, i) {
						if _, err := c.Trigger(b.Context(), sdk.Trigger{Job: "a"}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}

// BenchmarkTriggerThen uses one goroutine that waits only for room.
func BenchmarkTriggerThen(b *testing.B) {
	c := echoed(b)
	b.ReportAllocs()
	for b.Loop() {
		c.TriggerAsync(b.Context(), sdk.Trigger{Job: "a"}).Then(func(_ sdk.Answer, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := c.Flush(b.Context()); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

// share returns how many of n items the i-th worker handles.
func share(n, workers, i int) int { return n/workers + min(1, max(0, n%workers-i)) }

func echoed(b *testing.B) *sdk.Client {
	b.Helper()
	listener := memconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20)) // same settings as the server
	apiv1.RegisterClusterServer(g, echo{})
	apiv1.RegisterProducerServer(g, echo{})
	go g.Serve(listener) //nolint:errcheck // ends with the server
	b.Cleanup(g.Stop)
	c, err := sdk.Dial(b.Context(), "http://127.0.0.1:1", sdk.Options{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() }) //nolint:errcheck // the end of the benchmark
	return c
}
