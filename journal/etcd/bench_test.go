package etcd

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/wheelworkhq/wheelwork/journal"
)

// BenchmarkAppend measures durable, fenced appends of records of 280 bytes by one caller,
// with an etcd of one and of three members on this machine.
func BenchmarkAppend(b *testing.B) {
	for _, members := range []int{1, 3} {
		for _, n := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("members=%d/records=%d", members, n), func(b *testing.B) {
				e := begin(b, members, func(c *MemberConfig) { c.NoSync, c.Heartbeat, c.Election = false, 0, 0 })
				j := own(b, connect(b, "a", "w/", e.urls()...), "x")
				recs := make([]journal.Record, n)
				for i := range recs {
					recs[i] = rec(string(bytes.Repeat([]byte{'r'}, 280)))
				}
				done := make(chan error, 1)
				b.ResetTimer()
				for b.Loop() {
					if _, err := j.Append(recs, func(err error) { done <- err }); err != nil {
						b.Fatal(err)
					}
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkPipeline keeps up to 64 appends of 32 records under way, like the loop of a
// server under load.
func BenchmarkPipeline(b *testing.B) {
	const n = 32
	e := begin(b, 3, func(c *MemberConfig) { c.NoSync, c.Heartbeat, c.Election = false, 0, 0 })
	j := own(b, connect(b, "a", "w/", e.urls()...), "x")
	recs := make([]journal.Record, n)
	for i := range recs {
		recs[i] = rec(string(bytes.Repeat([]byte{'r'}, 280)))
	}
	window := make(chan struct{}, 64)
	b.ResetTimer()
	for b.Loop() {
		window <- struct{}{}
		if _, err := j.Append(recs, func(err error) {
			if err != nil {
				b.Error(err)
			}
			<-window
		}); err != nil {
			b.Fatal(err)
		}
	}
	for range cap(window) {
		window <- struct{}{}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
}
