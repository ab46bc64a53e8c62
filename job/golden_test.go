package job

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

var update = flag.Bool("update", false, "write testdata/bytes.golden")

// TestGoldenBytes checks that records and rows are written with the bytes that journals
// and stores already hold: neither a number nor the order of the fields changes. With
// -update it writes the bytes, which a new field changes.
func TestGoldenBytes(t *testing.T) {
	const path = "testdata/bytes.golden"
	var b strings.Builder
	for _, g := range golden(t) {
		fmt.Fprintf(&b, "%s %s\n", g.name, hex.EncodeToString(g.bytes))
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	if len(got) != len(lines) {
		t.Fatalf("%d encodings, %s has %d", len(got), path, len(lines))
	}
	for i := range got {
		if got[i] != lines[i] {
			t.Errorf("the bytes have changed:\n%s\nwant\n%s", got[i], lines[i])
		}
	}
}

type goldenBytes struct {
	name  string
	bytes []byte
}

// golden returns one encoding of each kind, with every field set.
func golden(t *testing.T) (all []goldenBytes) {
	t.Helper()
	n := int64(0)
	add := func(name string, b []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, goldenBytes{name, b})
	}

	started, finished := &apiv1.Started{}, &apiv1.Finished{}
	fill(started.ProtoReflect(), &n)
	fill(finished.ProtoReflect(), &n)
	b, err := AppendRecord(nil, &apiv1.Record{AtMs: 1_700_000_000_000, Kind: &apiv1.Record_Started{Started: started}})
	add("started", b, err)
	b, err = AppendRecord(nil, &apiv1.Record{AtMs: 1_700_000_000_000, Kind: &apiv1.Record_Finished{Finished: finished}})
	add("finished", b, err)
	accepted := &apiv1.Accepted{}
	fill(accepted.ProtoReflect(), &n)
	b, err = AppendAccept(BeginAccepts(nil, 1_700_000_000_000), accepted)
	add("accepts", b, err)

	for _, state := range []State{Running, Succeeded} {
		row, d := &apiv1.RunRow{}, &apiv1.Job{}
		fill(row.ProtoReflect(), &n)
		fill(d.ProtoReflect(), &n)
		d.Workflow = nil
		row.Id, row.Parent, row.Cause = make([]byte, 16), make([]byte, 16), make([]byte, 16)
		row.Id[0], row.Parent[1], row.Cause[2] = 1, 2, 3
		row.State, row.Definition = string(state), encode(d)
		s := NewSlot("a", 0)
		if err := s.LoadRun(row); err != nil {
			t.Fatal(err)
		}
		r := s.Runs.Get(runID(row.Id))
		r.Nth, r.FinishedMs = 9, 1_700_000_000_000
		b, err = r.AppendRow(nil)
		add("run "+string(state), b, err)
		b, err = r.AppendLive(nil)
		add("live "+string(state), b, err)
	}

	d := &apiv1.Job{}
	fill(d.ProtoReflect(), &n)
	d.Workflow, d.Name = nil, "j"
	s := NewSlot("a", 0)
	s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d, NextMs: 1_700_000_000_000}}}, nil)
	j := s.Jobs.Get("j")
	j.Planned = 7
	b, err = j.AppendRow(nil)
	add("job", b, err)
	stats := &apiv1.JobStatsRow{}
	fill(stats.ProtoReflect(), &n)
	stats.LastRun, stats.LastState = make([]byte, 16), string(Skipped)
	j.LoadStats(stats)
	b, err = j.AppendStats(nil)
	add("stats", b, err)
	add("key", AppendKey(nil, [16]byte{1}, RunID{2}, 1_700_000_000_000, 3), nil)

	return all
}
