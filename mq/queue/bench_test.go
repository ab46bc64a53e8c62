package queue

import (
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkPublish has 256 producers that each publish messages of 256 bytes one after
// the other, durably.
func BenchmarkPublish(b *testing.B) {
	q := open(b, Config{Dir: b.TempDir()})
	body := make([]byte, 256)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.SetBytes(256)
	b.ResetTimer()
	var producers sync.WaitGroup
	for range 256 {
		producers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := q.PublishSync(Message{Topic: "a", Body: body}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	producers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkConsume has one consumer that fetches and acknowledges 100 messages at a time.
func BenchmarkConsume(b *testing.B) {
	for _, bc := range []struct {
		name    string
		key     string
		cache   int
		durable bool
	}{
		{"recent", "", 0, false},
		{"recent-keys", "k", 0, false},
		{"log", "", 1, false},
		{"recent-durable", "", 0, true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			q := open(b, Config{Dir: b.TempDir(), CacheBytes: max(bc.cache, bc.cache*4096)})
			c := consumer(b, q, "a", "g")
			var msgs []Message
			for i := range 1000 {
				m := Message{Topic: "a", Body: make([]byte, 256)}
				if bc.key != "" {
					m.Key = bc.key + string(rune('0'+i%200))
				}
				msgs = append(msgs, m)
			}
			const lot = 100_000
			for done := 0; done < b.N; {
				b.StopTimer()
				for range lot / len(msgs) {
					publish(b, q, msgs...)
				}
				b.StartTimer()
				for got := 0; got < lot; {
					ds := fetch(b, c, 100)
					got += len(ds)
					if bc.durable {
						ack(b, c, ds...)
					} else if err := c.Ack(ds, nil); err != nil {
						b.Fatal(err)
					}
				}
				done += lot
			}
			b.StopTimer()
			n := (b.N + lot - 1) / lot * lot
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
