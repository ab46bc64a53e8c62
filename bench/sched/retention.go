package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/store"
	"github.com/wheelworkhq/wheelwork/store/segment"
)

const retentionRow = "retention/segment"

// fewSegments is the approximate number of segments of the shorter history. The longer
// one has more segments of the same size.
const fewSegments = 16

// retention measures dropping the oldest segment of a history, as a server does: in a
// history with all runs, and in one with a tenth of them.
func (b *bench) retention(ctx context.Context) error {
	const each = 256 // approximate bytes of a run in the history
	size := int64(max(b.size.ended/10*each/fewSegments, 4<<10))
	var took [2]float64 // of the shorter history, then of the longer one
	var dropped [2]int
	for i, runs := range []int{b.size.ended / 10, b.size.ended} {
		b.note("a history of %d runs", runs)
		dir := filepath.Join(b.dir, fmt.Sprint("retention-", runs))
		if err := fillHistory(ctx, dir, runs, size, max(b.size.ended/10/fewSegments/8, 1)); err != nil {
			return err
		}
		costs, err := dropHistory(ctx, filepath.Join(dir, "history"), runs, size)
		if err != nil {
			return err
		}
		took[i], dropped[i] = quantile(costs, 0.5)*1000, len(costs)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	b.report.AddRatio(retentionRow, took[1], "core-µs", fmt.Sprint(b.size.ended/10, " runs"), took[0], report.AtMost(1.5))
	b.report.Note(fmt.Sprintf("median of %d segments of %d runs, and of %d of %d", dropped[1], b.size.ended, dropped[0], b.size.ended/10))
	return nil
}

// fillHistory makes a store with the given number of ended runs. The parameter each is
// the size of a commit in runs.
func fillHistory(ctx context.Context, dir string, runs int, segmentBytes int64, each int) (err error) {
	s, err := store.Open(store.Config{Dir: dir, SegmentBytes: segmentBytes})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := rand.New(rand.NewPCG(6, 6))
	value := make([]byte, 170)
	from := time.Now().UnixMilli() // one run ends in each millisecond
	batch := make([]store.Finished, 0, each)
	for n := 0; n < runs; n += len(batch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch = batch[:0]
		for i := n; i < min(n+cap(batch), runs); i++ {
			f := store.Finished{
				App: "default", Job: stored(r.IntN(1_000_000)), Host: "host-1", State: "succeeded",
				PlannedMs: from + int64(i), FinishedMs: from + int64(i), Value: value,
			}
			binary.BigEndian.PutUint64(f.ID[:], uint64(f.PlannedMs)<<16)
			batch = append(batch, f)
		}
		if err := s.Commit(&store.Batch{Finished: batch}); err != nil {
			return err
		}
	}
	return nil
}

// dropHistory drops the segments of a history, the oldest first, and returns the
// processor time of each.
func dropHistory(ctx context.Context, dir string, runs int, segmentBytes int64) (took []time.Duration, err error) {
	l, err := segment.Open(dir, segment.Options{Kind: "history", SegmentBytes: segmentBytes, Length: segment.Tail})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var oldest int64
	for b, err := range l.From(0) {
		if err != nil {
			return nil, err
		}
		oldest = b.Min
		break
	}
	// The step is so small that it never spans a whole segment. The last segment remains,
	// because it is not sealed.
	step := max(int64(runs)/(fewSegments*10*4), 1)
	for before := oldest; l.Bytes() > 2*segmentBytes; before += step {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		begin, err := processorTime()
		if err != nil {
			return nil, err
		}
		freed, err := l.Retain(before)
		if err != nil {
			return nil, err
		}
		end, err := processorTime()
		if err != nil {
			return nil, err
		}
		if before > oldest+2*int64(runs) {
			return nil, fmt.Errorf("%d bytes of the history stay, however old they are", l.Bytes())
		}
		if freed > 0 {
			took = append(took, end-begin)
		}
	}
	if len(took) < 2 {
		return nil, fmt.Errorf("%d segments were dropped: too few to measure", len(took))
	}
	slices.Sort(took)
	return took, nil
}

// processorTime returns the processor time that this process has used.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
