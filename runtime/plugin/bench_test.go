//go:build unix

package plugin

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
)

// The benchmarks compare the cost of a task on the stream with that of a nearly empty
// unary call on the same connection. b.Loop counts one task, or one call.

func BenchmarkStream(b *testing.B) {
	for _, flight := range []int{1, 64, 512} {
		b.Run(atOnce(flight), func(b *testing.B) {
			e, _ := open(b, "wide")
			t := task("echo", "hello")
			parallel(b, flight, func() {
				if r := e.Run(context.Background(), t, &heard{}); string(r.Output) != "hello" {
					b.Errorf("got %+v", r)
				}
			})
		})
	}
}

func BenchmarkUnary(b *testing.B) {
	for _, flight := range []int{1, 64, 512} {
		b.Run(atOnce(flight), func(b *testing.B) {
			e, _ := open(b, "wide")
			i, err := e.plugins["self"].take(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			client := grpc_health_v1.NewHealthClient(i.conn)
			parallel(b, flight, func() {
				if _, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: "plugin"}); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func atOnce(n int) string {
	return map[int]string{1: "1", 64: "64", 512: "512"}[n]
}

// parallel calls f b.N times, from flight goroutines.
func parallel(b *testing.B, flight int, f func()) {
	f() // starts the plugin before the measurement
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range flight {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
