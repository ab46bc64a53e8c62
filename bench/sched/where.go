package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/pprof/profile"
)

// stage is a share of the processor time of the server's process.
type stage struct {
	row  string
	what []string // parts of function names; the first stage with a match in a sample gets the sample
}

// stages are in matching order: first garbage collection and the stages below the loop,
// then the decisions of the loop, then the rest. Allocation counts for the stage that
// allocates, and garbage collection is a stage of its own.
var stages = []stage{
	{"collect", []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge"}},
	{"journal", []string{"wheelwork/journal", "wheelwork/mq"}},
	{"view", []string{"wheelwork/store", "dgraph-io/badger", "wheelwork/sched/projection", "wheelwork/sched/core.(*Loop).checkpoint", "wheelwork/sched/core.(*Loop).WriteCheckpoints"}},
	{"accept", []string{"wheelwork/sched/core.(*Commands).Produce"}},
	{"end", []string{"wheelwork/sched/core.(*Sessions).HandleHostMessage", "wheelwork/sched/core.(*Stats).flushMetrics"}},
	{"start", []string{"wheelwork/sched/core.(*dispatcher).dispatch", "wheelwork/sched/core.(*committer).release"}},
	{"loop", []string{"wheelwork/sched/core.(*Loop).Run"}},
	{"guest", []string{"wheelwork/runtime/wasm"}},
	{"host", []string{"wheelwork/host"}},
	{"streams", []string{"google.golang.org/grpc", "golang.org/x/net/http2", "wheelwork/sched/api.(*producerAPI)", "wheelwork/sched/api.(*workerAPI)", "bufconn"}},
}

const (
	others = "others" // stage of samples that match no other
	asleep = "sleep"  // stage of looking for work and waiting for it
)

// stageOf returns the stage of a sample from its functions, the innermost first.
func stageOf(functions []string) string {
	for _, s := range stages {
		for _, f := range functions {
			for _, part := range s.what {
				if strings.Contains(f, part) {
					return s.row
				}
			}
		}
	}
	for _, f := range functions {
		if f == "runtime.mcall" || f == "runtime.mstart" {
			return asleep
		}
	}
	return others
}

// where returns the rows for the distribution of processor time over the stages.
func where() (rows []string) {
	for _, s := range stages {
		rows = append(rows, whereRow(s.row))
	}
	return append(rows, whereRow(asleep), whereRow(others))
}

func whereRow(stage string) string { return "e2e/batch100/cpu/" + stage }

// profiled runs a load again with a CPU profile of the server, and distributes its
// processor time over the stages.
func (b *bench) profiled(ctx context.Context, d *dev, l load) error {
	l.row = "where the time goes"
	taken := make(chan error, 1)
	var p *profile.Profile
	before, err := d.cpu()
	if err != nil {
		return err
	}
	seconds := max(int(float64(l.runs)/200_000), 1) // shorter than the load
	go func() {
		var err error
		p, err = d.profile(ctx, seconds)
		taken <- err
	}()
	if _, err := b.run(ctx, d, l); err != nil {
		return err
	}
	after, err := d.cpu()
	if err != nil {
		return err
	}
	if err := <-taken; err != nil {
		return fmt.Errorf("profile of the server: %w", err)
	}
	shares, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		var functions []string
		for _, at := range s.Location {
			for _, line := range at.Line {
				functions = append(functions, line.Function.Name)
			}
		}
		n := s.Value[len(s.Value)-1] // ns
		shares[stageOf(functions)] += n
		total += n
	}
	each := float64((after - before).Microseconds()) / float64(l.runs)
	for _, row := range append(stages, stage{row: asleep}, stage{row: others}) {
		b.report.Add(whereRow(row.row), each*float64(shares[row.row])/float64(max(total, 1)), "core-µs/run", nil)
	}
	b.report.Note(fmt.Sprintf("of %.1f; %d samples in %d s", each, len(p.Sample), seconds))
	return nil
}
