package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// many returns the n-th run of a large history: 10 000 jobs of one app, 100 hosts, one
// run in a thousand failed, values of 200 bytes.
func many(n int, value []byte) Finished {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	f := Finished{
		App: "default", Job: fmt.Sprint("job-", r.IntN(10_000)), Host: fmt.Sprint("host-", r.IntN(100)), State: "succeeded",
		ID: id(n), PlannedMs: recent, FinishedMs: recent, Value: value,
	}
	if r.IntN(1000) == 0 {
		f.State = "failed"
	}
	return f
}

// fillHistory commits runs in batches.
func fillHistory(t testing.TB, s *Store, from, to, batch int) {
	value := make([]byte, 200)
	for n := from; n < to; n += batch {
		b := &Batch{Applied: uint64(n), Rows: []Row{{"counter", value}}}
		for i := n; i < n+batch; i++ {
			b.Finished = append(b.Finished, many(i, value))
		}
		commit(t, s, b)
	}
}

// TestReadsFewBlocks counts blocks, which do not depend on the machine: a look-up reads
// one block, and a page reads one for each row.
func TestReadsFewBlocks(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 1 << 20})
	fillHistory(t, s, 0, 20_000, 200)
	count := func(keys [][]uint64) (n int) {
		for _, err := range s.history.Find(keys, segment.End) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for n := 0; n < 20_000; n += 997 {
		if got := count([][]uint64{{keyOfRun(lookup{byApp, "default", "", ""}.hash(), id(n))}}); got != 1 {
			t.Fatalf("run %d is looked for in %d blocks", n, got)
		}
	}
	for _, q := range []RunQuery{{App: "default", Job: "job-77"}, {App: "default", State: "failed"}, {State: "failed"}} {
		if blocks, rows := count(q.keys()), len(pages(t, s, q)); blocks == 0 || blocks > rows {
			t.Errorf("%+v: %d blocks for %d rows", q, blocks, rows)
		}
	}
}

// BenchmarkCommit measures the whole cost of a finished run.
func BenchmarkCommit(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("runs=", batch), func(b *testing.B) {
			s := openStore(b, Config{Dir: b.TempDir()})
			value := make([]byte, 200)
			runs := make([]Finished, batch)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				for i := range runs {
					runs[i] = many(n*batch+i, value)
				}
				b.StartTimer()
				commit(b, s, &Batch{Applied: uint64(n), Finished: runs, Rows: []Row{{"counter", value}}})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/run")
		})
	}
}

// BenchmarkQueries reads from a history of a million runs.
func BenchmarkQueries(b *testing.B) {
	const total = 1_000_000
	s := openStore(b, Config{Dir: b.TempDir()})
	fillHistory(b, s, 0, total, 1000)
	s = reopen(b, s)
	b.Run("id", func(b *testing.B) {
		for n := 0; b.Loop(); n += 7919 {
			if _, ok, err := s.Run("default", id(n%total)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		b.ReportMetric(float64(s.Stats().History)/total, "B/run")
	})
	for name, q := range map[string]RunQuery{
		"job":        {App: "default", Job: "job-4711"},
		"failed":     {State: "failed"},
		"job-failed": {App: "default", Job: "job-4711", State: "failed"},
		"host":       {Host: "host-42"},
		"all":        {},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, _, err := s.Runs(q)
				if err != nil || name != "job-failed" && len(page) < 50 {
					b.Fatal(len(page), err)
				}
			}
		})
	}
}
