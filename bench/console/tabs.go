package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	tabCount = 8
	tabPace  = time.Second // the shortest interval of refreshes that the console offers
)

const (
	tabTime    = "tabs/p99"
	tabStreams = "tabs/streams"
)

var tabRows = []string{tabTime, tabStreams}

// measureTabs opens eight tabs, each with a session of its own. Each follows the log of a
// run and fetches a page every second, while other runs are triggered.
func (b *bench) measureTabs(ctx context.Context) error {
	b.note("%d tabs: %v", tabCount, b.size.tabs)
	begun, err := b.ended(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var took []time.Duration
	var complete int
	var cut error // why the first stream is incomplete
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var load errgroup.Group
	load.Go(func() error { return b.load(loading) })
	tabs, following := errgroup.WithContext(ctx)
	for i := range tabCount {
		tabs.Go(func() error {
			br, err := b.signIn(following)
			if err != nil {
				return err
			}
			run, err := b.dev.TriggerRun(following, sdk.Trigger{Job: logJob, Input: []byte(b.size.tabs.String())})
			if err != nil {
				return err
			}
			over := make(chan error, 1)
			go func() { over <- b.follow(following, br, run.GetId()) }()
			tick := time.NewTicker(tabPace)
			defer tick.Stop()
			for n := i * len(pages) / tabCount; ; n++ {
				select {
				case <-tick.C:
				case err := <-over:
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						complete++
					} else if cut == nil {
						cut = err
					}
					return following.Err()
				}
				_, _, t, err := br.get(following, b.world.of(pages[n%len(pages)]))
				if err != nil {
					return err
				}
				mu.Lock()
				took = append(took, t)
				mu.Unlock()
			}
		})
	}
	err = tabs.Wait()
	stop()
	if err = errors.Join(err, load.Wait()); err != nil {
		return err
	}
	ended, err := b.ended(ctx)
	if err != nil {
		return err
	}
	if len(took) == 0 {
		return errors.New("no tab has fetched a page: the runs of the tabs were too short")
	}
	if cut != nil {
		b.note("a stream: %v", cut)
	}
	slices.Sort(took)
	b.report.Add(tabTime, quantile(took, 0.99), "ms", timeGoal)
	b.report.Note(fmt.Sprintf("p50 %.3g ms, %d pages by %d tabs in %v, while %d runs ended", quantile(took, 0.5), len(took), tabCount, b.size.tabs, ended-begun))
	b.report.Add(tabStreams, float64(complete), "streams", report.AtLeast(tabCount))
	b.report.Note("with each line of their run, in order, and its end")
	return nil
}

// load triggers runs at the rate of the size until its context ends.
func (b *bench) load(ctx context.Context) error {
	const every = 20 * time.Millisecond
	r := rand.New(rand.NewPCG(3, 3))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		var all []*sdk.Pending
		for range max(b.size.load*int(every)/int(time.Second), 1) {
			all = append(all, b.dev.TriggerAsync(ctx, sdk.Trigger{Job: stored(r.IntN(b.size.jobs))}))
		}
		for _, p := range all {
			if _, err := p.Wait(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// follow reads the event stream of a run of logJob to its end, and checks that each line
// is there.
func (b *bench) follow(ctx context.Context, br *browser, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, br.url+"/apps/default/runs/"+id+"/events", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := br.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("events of run %s: %s", id, resp.Status)
	}
	next, event := 0, ""
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				err = fmt.Errorf("the stream of run %s ended after %d lines", id, next)
			}
			return err
		}
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case event == "log":
			var fact struct{ Text string }
			if err := json.Unmarshal([]byte(data), &fact); err != nil {
				return err
			}
			if want := "line " + strconv.Itoa(next) + ":"; !strings.HasPrefix(fact.Text, want) {
				return fmt.Errorf("run %s: %q came instead of %q", id, fact.Text, want)
			}
			next++
		case event == "end":
			run, err := b.dev.Run(ctx, "", id)
			if err != nil {
				return err
			}
			if wrote := string(run.GetOutput()); wrote != strconv.Itoa(next) {
				return fmt.Errorf("run %s is %s and wrote %q lines; %d came", id, run.GetState(), wrote, next)
			}
			return nil
		}
	}
}
