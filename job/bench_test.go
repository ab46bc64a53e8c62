package job

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// benchJobs is the number of jobs and of live runs in the benchmarks: more than fit into
// the caches of a processor.
const benchJobs = 1 << 20

// benchSlot returns a slot with jobs, and their names.
func benchSlot(n int) (*Slot, []string) {
	s, names := NewSlot("a", 0), make([]string, n)
	d := &apiv1.Job{Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Digest: "d"}
	shape := s.shape(d)
	for i := range names {
		names[i] = fmt.Sprintf("job-%07d", i)
		j := &Job{kind: shape.plain}
		s.write(j, names[i], nil)
		s.Jobs.add(j)
	}
	return s, names
}

// heapOf returns the bytes of the heap that build retains per item.
func heapOf(n int, build func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	built := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(built)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

// BenchmarkJobs looks up jobs by name, one at a time and in random order, in a table and
// in a Go map, and reports the bytes per job of each.
func BenchmarkJobs(b *testing.B) {
	s, names := benchSlot(benchJobs)
	jobs := make([]*Job, len(names))
	for i, name := range names {
		jobs[i] = s.Jobs.Get(name)
	}
	b.Run("table", func(b *testing.B) {
		bytes := heapOf(len(jobs), func() any {
			t := &Jobs{}
			for _, j := range jobs {
				t.add(j)
			}
			return t
		})
		r := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			if s.Jobs.Get(names[r.IntN(len(names))]) == nil {
				b.Fatal("a job is missing")
			}
		}
		b.ReportMetric(bytes, "bytes/job")
	})
	b.Run("map", func(b *testing.B) {
		m := map[string]*Job{}
		bytes := heapOf(len(jobs), func() any {
			for i, j := range jobs {
				m[names[i]] = j
			}
			return m
		})
		r := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			if m[names[r.IntN(len(names))]] == nil {
				b.Fatal("a job is missing")
			}
		}
		b.ReportMetric(bytes, "bytes/job")
	})
}

func benchID(n uint64) (id RunID) {
	binary.BigEndian.PutUint64(id[8:], n*0x9e3779b97f4a7c15)
	return id
}

// BenchmarkRuns adds, looks up four times and removes runs while 100 000 are live, in a
// table and in a Go map.
func BenchmarkRuns(b *testing.B) {
	const live = 100_000
	runs := make([]Run, 2*live)
	for i := range runs {
		runs[i].ID = benchID(uint64(i))
	}
	bench := func(b *testing.B, add func(*Run), get func(RunID) *Run, remove func(RunID)) {
		for i := range live {
			add(&runs[i])
		}
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			old, now := &runs[n%len(runs)], &runs[(n+live)%len(runs)]
			add(now)
			for range 4 {
				if get(old.ID) != old {
					b.Fatal("a run is missing")
				}
			}
			remove(old.ID)
		}
	}
	b.Run("table", func(b *testing.B) {
		var t Runs
		bench(b, t.add, t.Get, t.remove)
	})
	b.Run("map", func(b *testing.B) {
		m := map[RunID]*Run{}
		bench(b, func(r *Run) { m[r.ID] = r }, func(id RunID) *Run { return m[id] }, func(id RunID) { delete(m, id) })
	})
}

// BenchmarkKeys adds new idempotency keys to a slot that has as many as it may have, to
// keys and to a Go map with a queue. It reports the bytes per key of each.
func BenchmarkKeys(b *testing.B) {
	add := func(b *testing.B, bytes float64, put func(key)) {
		b.ReportAllocs()
		for n := uint64(MaxKeys); b.Loop(); n++ {
			put(key{hash: benchID(n)})
		}
		b.ReportMetric(bytes, "bytes/key")
	}
	b.Run("keys", func(b *testing.B) {
		k := &keys{}
		bytes := heapOf(MaxKeys, func() any {
			for n := range uint64(2 * MaxKeys) {
				k.add(key{hash: benchID(n)})
			}
			return k
		})
		add(b, bytes, k.add)
	})
	b.Run("map", func(b *testing.B) {
		o := &oracle{m: map[[16]byte]RunID{}}
		bytes := heapOf(MaxKeys, func() any {
			for n := range uint64(2 * MaxKeys) {
				o.add(key{hash: benchID(n)})
			}
			return o
		})
		add(b, bytes, o.add)
	})
}

// BenchmarkPrefetch looks up a job by name in random order and counts a run of it, with
// FindJobs and one look-up after another.
func BenchmarkPrefetch(b *testing.B) {
	s, names := benchSlot(benchJobs)
	r := rand.New(rand.NewPCG(1, 2))
	const message = 256 // triggers
	wanted := make([]string, message)
	bench := func(b *testing.B, handle func()) {
		for b.Loop() {
			for i := range wanted {
				wanted[i] = names[r.IntN(len(names))]
			}
			handle()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/message, "ns/job")
	}
	b.Run("prefetched", func(b *testing.B) {
		bench(b, func() {
			for _, j := range FindJobs(wanted, func(name *string, w *Wanted) { w.Slot, w.Name = s, *name }) {
				j.succeeded++
			}
		})
	})
	b.Run("single", func(b *testing.B) {
		bench(b, func() {
			for _, name := range wanted {
				s.Jobs.Get(name).succeeded++
			}
		})
	})
}

// BenchmarkAppendRow encodes the row of a run that has ended, by hand and with
// proto.Marshal.
func BenchmarkAppendRow(b *testing.B) {
	s, names := benchSlot(1)
	id := benchID(1)
	s.Apply(&apiv1.Record{AtMs: 1_700_000_000_000, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: names[0]}}}, nil)
	r := s.Runs.Get(id)
	r.State, r.Host, r.Session, r.Attempt, r.Nth = Succeeded, "host-1", "session-1", 1, 9
	r.Attempts = []Attempt{{Number: 1, Host: "host-1", DispatchedMs: 1_700_000_000_001, StartedMs: 1_700_000_000_002, FinishedMs: 1_700_000_000_003, Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}}
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		var room []byte
		var err error
		for b.Loop() {
			if room, err = r.AppendRow(room[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		var room []byte
		var err error
		for b.Loop() {
			if room, err = (proto.MarshalOptions{}).MarshalAppend(room[:0], r.Row()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadEnding reads the row of a run that has ended, by hand and with
// proto.Unmarshal.
func BenchmarkReadEnding(b *testing.B) {
	row := &apiv1.RunRow{}
	n := int64(0)
	fill(row.ProtoReflect(), &n)
	row.Definition, row.Nodes, row.Map = nil, nil, nil
	text, err := proto.Marshal(row)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadEnding(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(text, &apiv1.RunRow{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGoesOn reads the schedule of a job by hand and with proto.Unmarshal.
func BenchmarkGoesOn(b *testing.B) {
	s := NewSlot("a", 0)
	d := &apiv1.Job{Name: "j", Handler: &apiv1.Handler{Module: "m@1"}, Schedule: &apiv1.Schedule{Every: "30s", Zone: "UTC", Jitter: "5s"}}
	s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d}}}, nil)
	j := s.Jobs.Get("j")
	b.Run("hand", func(b *testing.B) {
		for b.Loop() {
			if !j.GoesOn() {
				b.Fatal("the schedule has a rate")
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		for b.Loop() {
			m := &apiv1.Schedule{}
			if err := proto.Unmarshal([]byte(j.Schedule()), m); err != nil || m.Every == "" {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSpec reports the bytes that a definition takes in a slot, and as a decoded
// message.
func BenchmarkSpec(b *testing.B) {
	const n = 100_000
	define := func(i int) *apiv1.Job {
		return &apiv1.Job{
			Name: fmt.Sprintf("job-%07d", i), Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Digest: "sha256:0123456789abcdef",
			Schedule: &apiv1.Schedule{Every: "30s"}, Retry: &apiv1.Retry{Max: 3}, Timeout: "1m", Input: fmt.Sprint(i),
		}
	}
	slot := heapOf(n, func() any {
		s := NewSlot("a", 0)
		for i := range n {
			s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: define(i)}}}, nil)
		}
		return s
	})
	decoded := heapOf(n, func() any {
		jobs := make([]*apiv1.Job, n)
		for i := range jobs {
			jobs[i] = define(i)
		}
		return jobs
	})
	for b.Loop() { // the measurement is above
	}
	b.ReportMetric(slot, "bytes/job")
	b.ReportMetric(decoded, "decoded-bytes/job")
}
