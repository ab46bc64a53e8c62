package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// tiny returns options with the smallest amounts of work. Nothing listens at the
// addresses of the peers.
func tiny(t *testing.T, only string) options {
	t.Helper()
	return options{
		size: sizes{
			timers: 1000, costs: 3, rounds: 1, window: 20 * time.Millisecond, fires: 2000,
			jobs: 100, settle: time.Millisecond, herd: 100, singles: 5, stored: 100, runs: 2000, ended: 2000, waiting: 1500, peers: 10, batches: 20,
			flood: 200 * time.Millisecond, watch: 500 * time.Millisecond, fleet: 500 * time.Millisecond,
		},
		only:     regexp.MustCompile(only),
		postgres: "postgres://nobody@127.0.0.1:1/nothing", redis: "127.0.0.1:1",
	}
}

// disk returns a directory that is on a disk if the sources are.
func disk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("it left %v: %v", left, err)
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// TestMeasure runs every part: its own checks must pass, it must add the rows that it
// declares, and the JSON must have their form.
func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), tiny(t, ""), disk(t), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatalf("%v: %+v", err, r.Rows)
	}
	var got struct {
		Bench   string
		Machine report.Machine
		Rows    []struct {
			Name, Unit, Skipped, Note string
			Value                     float64
			Anchor                    *string
			Ratio                     *float64
			Goal                      *string
			Met                       *bool
		}
	}
	d := json.NewDecoder(&out)
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Bench != "sched" || got.Machine.CPUs < 1 {
		t.Errorf("%+v", got)
	}
	var names, want []string
	for _, p := range parts {
		want = append(want, p.rows...)
	}
	mayBeNothing := append(where(), // so little work yields few samples
		"early", "timer/idle", "herd/100k/lost", "herd/100k/doubled", "herd/100k/p50", "herd/100k/p99", "herd/100k/other/p99",
		"fair/flood/compute/unknown", "fair/flood/compute/known", "fair/flood/sleep/unknown", "fair/flood/sleep/known", "fair/fleet", // in ms, which may round to 0
	)
	for _, row := range got.Rows {
		names = append(names, row.Name)
		switch {
		case strings.Contains(row.Name, "/vs-"):
			judged := row.Goal != nil && *row.Goal == ">=10"
			if !strings.Contains(row.Skipped, "task peers") || judged == strings.HasSuffix(row.Name, "/brief") || row.Met != nil {
				t.Errorf("a peer that is not there: %+v", row)
			}
		case row.Value <= 0 && !slices.Contains(mayBeNothing, row.Name):
			t.Errorf("%s: %g", row.Name, row.Value)
		case row.Unit == "" || row.Skipped != "":
			t.Errorf("%+v", row)
		}
		for _, nothing := range []string{"early", "herd/100k/lost", "herd/100k/doubled"} {
			if row.Name == nothing && (row.Value != 0 || row.Met == nil || !*row.Met) {
				t.Errorf("%+v", row)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
}

func TestOnly(t *testing.T) {
	r, err := measure(t.Context(), tiny(t, "^early$|timer/gc$"), disk(t), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Name != "timer/gc" || r.Rows[1].Name != "early" {
		t.Errorf("%+v", r.Rows)
	}
	if r, err := measure(t.Context(), tiny(t, "^nothing$"), disk(t), t.Output()); err == nil || r != nil {
		t.Errorf("no row was asked for: %v, %v", r, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-o", "xml"}, {"--nothing"}, {"--only", "("}, {"--dir", "/nowhere/at/all"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

// TestPeers puts a load on each peer that is running.
func TestPeers(t *testing.T) {
	for _, p := range []struct {
		peer
		address string
	}{{riverPeer, postgresDefault}, {asynqPeer, redisDefault}} {
		t.Run(p.name, func(t *testing.T) {
			for _, l := range []load{{runs: 250, producers: 4, batch: 100}, {runs: 100, producers: 64, batch: 1}} {
				b := &bench{notes: t.Output()}
				took, err := b.measurePeer(t.Context(), p.peer, p.address, l)
				var why missing
				if errors.As(err, &why) {
					testkit.Lacks(t, "%v", why)
				}
				if err != nil || took <= 0 {
					t.Errorf("%+v: %v, %v", l, took, err)
				}
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := tiny(t, "")
	o.size = full
	if _, err := measure(ctx, o, disk(t), io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

func TestFixturesMatchTheirSources(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		testkit.Lacks(t, "needs wat2wasm (Debian package wabt), which is not installed")
	}
	for name, code := range map[string][]byte{"trivial": trivialModule, "compute": computeModule, "sleep": sleepModule} {
		out := filepath.Join(t.TempDir(), "out.wasm")
		if msg, err := exec.Command(tool, filepath.Join("testdata", name+".wat"), "-o", out).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, msg)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(code, want) {
			t.Errorf("testdata/%s.wasm is not what its source makes: build it again", name)
		}
	}
}

// TestParties checks that each racer fires all timers of a round and none early, and the
// cost functions of the wheel.
func TestParties(t *testing.T) {
	due := deadlines(10_000, 10*time.Millisecond, 1)
	for _, r := range []racer{raceFloor(100), raceOurs(100), raceAfterFunc(100)} {
		for i, late := range r.race(due) {
			if late < 0 {
				t.Errorf("%s: timer %d was %v early", r.name, i, -late)
			}
		}
		r.close()
	}
	o := &ours{}
	o.reserve(1000)
	for i := range 1000 {
		o.add(i, time.Second)
	}
	for i := range 999 {
		o.cancel(i)
	}
	if n := o.w.Len(); n > 3 {
		t.Errorf("%d entries are held for one timer", n)
	}
	left := 0
	o.w.Advance(1000, func(_ int64, v timer) {
		if o.gens[v.id] == v.gen {
			left++
		}
	})
	if left != 1 {
		t.Errorf("%d timers are left, want 1", left)
	}
}
