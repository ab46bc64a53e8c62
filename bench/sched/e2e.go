package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// load describes the producers: each submits batch pieces of work at once and continues
// when they are durable, until the load has runs of them.
type load struct {
	row              string
	runs             int
	producers, batch int
	goal             *report.Goal // in runs per second
	versus           *report.Goal // as a multiple of the rate of a peer
}

// loads returns the two loads: large batches, and single triggers by many producers that
// wait for each.
func (b *bench) loads() []load {
	return []load{
		{"e2e/batch100", b.size.runs, 64, 100, report.AtLeast(150_000), report.AtLeast(10)},
		{"e2e/waiting1024", b.size.waiting, 1024, 1, report.AtLeast(100_000), report.AtLeast(10)},
	}
}

// warmShare is the divisor for the number of runs before the first measurement, also on
// peers. The benchmark measures sustained rates, and a process that has just started
// still gets the memory for the load from the system, page by page.
const warmShare = 4

// endToEnd measures runs from the call of a producer to their durable end, with many
// stored jobs, and compares the rates with other queues.
func (b *bench) endToEnd(ctx context.Context) (err error) {
	d, err := b.start(ctx, "e2e")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	if err := d.push(ctx, "", "trivial", trivialModule); err != nil {
		return err
	}
	if _, err := b.store(ctx, d, b.size.stored, time.Now().Add(calm).UTC(), ""); err != nil {
		return err
	}
	warm := load{row: "warm up", runs: b.size.runs / warmShare, producers: 64, batch: 100}
	if _, err := b.run(ctx, d, warm); err != nil {
		return err
	}
	rates := map[string]float64{}
	for _, l := range b.loads() {
		if !b.wants(l.row, l.row+"/cpu", l.row+"/vs-river", l.row+"/vs-river/brief", l.row+"/vs-asynq") && !(l.batch > 1 && b.wants(slices.Concat(history, where())...)) {
			continue
		}
		before, err := d.cpu()
		if err != nil {
			return err
		}
		did, err := b.run(ctx, d, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.row, err)
		}
		after, err := d.cpu()
		if err != nil {
			return err
		}
		rates[l.row] = float64(l.runs) / did.took.Seconds()
		b.report.Add(l.row, rates[l.row], "runs/s", l.goal)
		b.report.Note(fmt.Sprintf("%d runs of %d jobs", l.runs, b.size.stored))
		b.report.Add(l.row+"/cpu", float64((after-before).Microseconds())/float64(l.runs), "core-µs/run", nil)
		if l.batch > 1 && b.wants(where()...) && b.profile == "" {
			again := l
			again.runs /= 2
			if err := b.profiled(ctx, d, again); err != nil {
				return err
			}
		}
		if l.batch > 1 && b.wants(history...) {
			ids, err := b.fill(ctx, d, l, did.ids)
			if err != nil {
				return err
			}
			if err := b.history(ctx, d, ids); err != nil {
				return err
			}
		}
	}
	if err := d.end(syscall.SIGTERM); err != nil { // so that the peers have the machine to themselves
		return err
	}
	return b.peers(ctx, rates)
}

// done is the outcome of a load.
type done struct {
	took time.Duration
	ids  []runID
}

// runID is the text of a run ID. Millions of them are held in memory. Strings would
// contain pointers, and the garbage collector of this process would have to scan each.
type runID [26]byte

func (id runID) String() string { return string(id[:]) }

// run puts a load on the server. It returns when the last run has ended and a list shows
// it.
func (b *bench) run(ctx context.Context, d *dev, l load) (done, error) {
	var acknowledged atomic.Int64
	defer b.progress(l.row, l.runs, &acknowledged)()
	before, err := d.Overview(ctx, "")
	if err != nil {
		return done{}, err
	}
	var left atomic.Int64
	left.Store(int64(l.runs))
	var mu sync.Mutex
	did := done{ids: make([]runID, 0, l.runs)} // allocated before the measurement
	var last, lastJob string
	begin := time.Now()
	group, ctx2 := errgroup.WithContext(ctx)
	for p := range l.producers {
		group.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(p), uint64(l.producers)))
			ids := make([]runID, 0, 5*l.runs/(4*l.producers))
			var job string
			batch := make([]*sdk.Pending, 0, l.batch)
			for {
				batch = batch[:0]
				for len(batch) < l.batch && left.Add(-1) >= 0 {
					job = stored(r.IntN(b.size.stored))
					batch = append(batch, d.TriggerAsync(ctx2, sdk.Trigger{Job: job}))
				}
				for _, p := range batch {
					answer, err := p.Wait(ctx2)
					if err != nil {
						return err
					}
					if len(answer.RunID) != len(runID{}) {
						return fmt.Errorf("a run has the id %q", answer.RunID)
					}
					ids = append(ids, runID([]byte(answer.RunID)))
				}
				acknowledged.Add(int64(len(batch)))
				if len(batch) < l.batch {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			did.ids = append(did.ids, ids...)
			if len(ids) > 0 {
				last, lastJob = ids[len(ids)-1].String(), job
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return done{}, err
	}
	if err := d.awaitEnds(ctx, "", before.GetSucceededTotal()+before.GetFailedTotal()+int64(l.runs)); err != nil {
		return done{}, err
	}
	if err := poll(ctx, time.Millisecond, func() (bool, error) { return d.lists(ctx, lastJob, last) }); err != nil {
		return done{}, err
	}
	did.took = time.Since(begin)
	return did, d.check(ctx, before, did.ids)
}

// lists reports whether the list of a job's runs shows that a run has succeeded.
func (d *dev) lists(ctx context.Context, job, id string) (bool, error) {
	for run, err := range d.Runs(ctx, sdk.RunQuery{Job: job, Limit: 100}) {
		if err != nil {
			return false, err
		}
		if run.GetId() == id {
			return run.GetState() == sdk.Succeeded, nil
		}
	}
	return false, nil
}

// check checks that the number of acknowledged runs equals the number of runs that
// succeeded since before, that their IDs are distinct, and reads some of the runs.
func (d *dev) check(ctx context.Context, before *sdk.Overview, ids []runID) error {
	after, err := d.Overview(ctx, "")
	if err != nil {
		return err
	}
	succeeded := after.GetSucceededTotal() - before.GetSucceededTotal()
	if failed := after.GetFailedTotal() - before.GetFailedTotal(); failed != 0 || succeeded != int64(len(ids)) {
		return fmt.Errorf("%d runs were acknowledged, %d succeeded, %d did not", len(ids), succeeded, failed)
	}
	slices.SortFunc(ids, func(a, b runID) int { return bytes.Compare(a[:], b[:]) })
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		return errors.New("one run was acknowledged to two triggers")
	}
	const some = 200
	for i := 0; i < len(ids); i += max(len(ids)/some, 1) {
		run, err := d.Run(ctx, "", ids[i].String())
		if err != nil {
			return err
		}
		if run.GetState() != sdk.Succeeded {
			return fmt.Errorf("run %s is %s: %s", ids[i], run.GetState(), run.GetError())
		}
	}
	return nil
}

// history lists the rows about ended runs.
var history = []string{"history/id/p99", "history/page/p99", "history/bytes"}

// fill puts more load on the server until its history is as long as the size ended. It
// returns IDs of runs in the history, including the given ones.
func (b *bench) fill(ctx context.Context, d *dev, l load, ids []runID) ([]runID, error) {
	const piece = 1_000_000
	for {
		o, err := d.Overview(ctx, "")
		if err != nil {
			return nil, err
		}
		left := int64(b.size.ended) - o.GetSucceededTotal()
		if left <= 0 {
			return ids, nil
		}
		l.row, l.runs = "fill the history", int(min(left, piece))
		did, err := b.run(ctx, d, l)
		if err != nil {
			return nil, err
		}
		ids = append(ids, did.ids[:min(len(did.ids), 1000)]...)
	}
}

// history measures how long it takes to read one ended run, and a page of a list of ended
// runs.
func (b *bench) history(ctx context.Context, d *dev, ids []runID) error {
	const asks = 200
	b.note("read the history: %d times each", asks)
	o, err := d.Overview(ctx, "")
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(5, 5))
	one := func() error {
		_, err := d.Run(ctx, "", ids[r.IntN(len(ids))].String())
		return err
	}
	// These are the queries of the console's pages.
	queries := []func() sdk.RunQuery{
		func() sdk.RunQuery { return sdk.RunQuery{} },
		func() sdk.RunQuery { return sdk.RunQuery{Job: stored(r.IntN(b.size.stored))} },
		func() sdk.RunQuery { return sdk.RunQuery{State: sdk.Succeeded} },
		func() sdk.RunQuery { return sdk.RunQuery{State: "unsuccessful"} },
	}
	page := func() error {
		q := queries[r.IntN(len(queries))]()
		q.Limit = 50
		for _, err := range d.Runs(ctx, q) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for i, ask := range []func() error{one, page} {
		var took []time.Duration
		for range asks {
			begin := time.Now()
			if err := ask(); err != nil {
				return fmt.Errorf("%s: %w", history[i], err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		b.report.Add(history[i], quantile(took, 0.99), "ms", []*report.Goal{report.AtMost(1), report.AtMost(10)}[i])
		b.report.Note(fmt.Sprintf("%d asks of %d runs", asks, o.GetSucceededTotal()))
	}
	var size int64
	segments, err := filepath.Glob(filepath.Join(b.dir, "e2e", "store", "history", "*"))
	if err != nil {
		return err
	}
	for _, segment := range segments {
		st, err := os.Stat(segment)
		if err != nil {
			return err
		}
		size += st.Size()
	}
	b.report.Add(history[2], float64(size)/float64(o.GetSucceededTotal()), "B/run", nil)
	return nil
}
