package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/store"
)

// untilCluster requests the cluster's status until is reports true.
func untilCluster(t *testing.T, c *sdk.Client, what string, is func(*sdk.Cluster) bool) {
	t.Helper()
	for end := within(t); ; {
		s, err := c.Cluster(end)
		if err == nil && is(s) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-end.Done():
			t.Fatalf("waited for this: %s. There is %v, %v", what, s, err)
		}
	}
}

// newSplittable returns a cluster of three partitions, which soon move to their desired
// owners.
func newSplittable(t *testing.T) *clustered {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts clusters of several partitions, and waits for them: not with -short")
	}
	t.Parallel()
	w := newClustered(t)
	w.etcd, w.partitions, w.settle = beside(t), 3, time.Second
	return w
}

// TestBackupOfSplitApp: a backup of a cluster in which an app is split has each of its
// jobs once, also if it was requested while slots moved. Restored to a cluster with
// another number of servers, the app has the placement that it had, with its runs, counts
// and keys. Its schedules fire, and it can be merged and split again.
func TestBackupOfSplitApp(t *testing.T) {
	w := newSplittable(t)
	ready, stop := w.server(0)
	one := w.works(ready)
	second, stop2 := w.server(1)
	w.works(second)
	// Each of the two clusters has a host of its own; TestBackupOfCluster keeps one.
	host := func(name, servers string) *process {
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Host(ctx, node.HostConfig{Data: filepath.Join(w.dir, name), Nameserver: servers, TokenFile: filepath.Join(w.dir, "shared"), Ready: ready})
		})
	}
	h := host("h0", w.names.GRPC)
	c := client(t, one, adminToken)
	const app, jobs = "hot", 32
	name := func(i int) string { return fmt.Sprintf("job-%02d", i) }
	if _, _, err := c.PushModule(within(t), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		def := &sdk.Job{App: app, Name: name(i), Handler: &sdk.Handler{Module: "greet@1"}, Input: name(i)}
		if i%4 == 0 {
			def.Schedule = &sdk.Schedule{Every: "1s"}
		}
		if _, err := c.Apply(within(t), def); err != nil {
			t.Fatal(err)
		}
	}
	runs := map[string]string{} // by key: JOB:WHEN
	order := func(c *sdk.Client, when string) {
		t.Helper()
		for i := range jobs {
			a, err := c.Trigger(within(t), sdk.Trigger{App: app, Job: name(i), Key: name(i) + ":" + when})
			if err != nil {
				t.Fatal(err)
			}
			runs[name(i)+":"+when] = a.RunID
		}
		for i := range jobs {
			if r, err := c.Wait(within(t), app, runs[name(i)+":"+when]); err != nil || r.State != "succeeded" {
				t.Fatalf("%s, %s: %v, %v", name(i), when, r, err)
			}
		}
	}
	split := func(c *sdk.Client, partitions int) {
		t.Helper()
		var err error
		if partitions > 1 {
			_, err = c.SplitApp(within(t), app, partitions)
		} else {
			_, err = c.MergeApp(within(t), app)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// make makes a backup, with as many attempts as it needs.
	make := func(moving bool) []byte {
		t.Helper()
		for try := 0; ; try++ {
			var b bytes.Buffer
			err := backUp(within(t), c, &b)
			if err == nil {
				return b.Bytes()
			}
			if try == 50 || !errors.Is(err, sdk.ErrUnavailable) || moving && !strings.Contains(err.Error(), "make the backup again") && !strings.Contains(err.Error(), "goes to another server") {
				t.Fatal(err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	untilCluster(t, c, "both servers own something", func(s *sdk.Cluster) bool { return len(owned(s)) == 2 })
	order(c, "before")
	split(c, 3)
	underway := make(true) // the app has just begun to move
	untilCluster(t, c, "the app is in three partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 3) })
	first := maps.Clone(runs)
	order(c, "after")
	// The counts of jobs without a schedule no longer change.
	counts := func(c *sdk.Client) map[string][2]int64 {
		t.Helper()
		all := map[string][2]int64{}
		for j, err := range c.Jobs(within(t), sdk.JobQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := all[j.Name]; twice {
				t.Errorf("job %s is there twice", j.Name)
			}
			all[j.Name] = [2]int64{j.GetStats().GetSucceeded(), j.GetStats().GetFailed()}
		}
		for i := 0; i < jobs; i += 4 {
			delete(all, name(i))
		}
		return all
	}
	before := counts(c)
	steady := make(false)
	if err := errors.Join(h.stop(), stop(), stop2()); err != nil {
		t.Fatal(err)
	}

	for i, made := range map[string][]byte{"while slots moved": underway, "split": steady} {
		n := 2
		keys := first
		if i == "split" {
			n, keys = 3, runs
		}
		if _, err := archive.Restore(within(t), bytes.NewReader(made), w.data(n), nil, nil); err != nil {
			t.Fatal(err)
		}
		w.etcd, w.partitions = beside(t), 0
		if _, err := node.Grow(within(t), w.grow(n)); err != nil {
			t.Fatal(err)
		}
		ready, stop := w.server(n) // the only server
		began := time.Now()
		alone := w.works(ready)
		again := client(t, alone, adminToken)
		h := host(fmt.Sprint("h", n), alone.GRPC) // the nameserver outside knows the epochs of the old cluster
		untilCluster(t, again, "the app is where it was wanted", func(s *sdk.Cluster) bool { return len(owned(s)) == 1 && arrived(s, app, 3) })
		if now := counts(again); i == "split" && !maps.Equal(now, before) || len(now) != len(before) {
			t.Errorf("%s: the jobs have done %v, and had done %v", i, now, before)
		}
		for key, id := range keys {
			job, _, _ := strings.Cut(key, ":")
			a, err := again.Trigger(within(t), sdk.Trigger{App: app, Job: job, Key: key})
			if err != nil || a.RunID != id {
				t.Errorf("%s: the key %s is of %s now, and was of %s: %v", i, key, a.RunID, id, err)
				continue
			}
			if r, err := again.Run(within(t), app, id); err != nil || r.State != "succeeded" || r.Output != "Hello, "+job+"!\n" {
				t.Errorf("%s: run %s of %s: %v, %v", i, id, key, r, err)
			}
		}
		fired := map[string]bool{}
		for end := within(t); len(fired) < jobs/4; {
			for r, err := range again.Runs(end, sdk.RunQuery{App: app, Limit: 100}) {
				if err != nil {
					t.Fatalf("%s: of the schedules these have fired: %v; %v", i, slices.Sorted(maps.Keys(fired)), err)
				}
				if r.Trigger == "schedule" && r.PlannedAt.AsTime().After(began) && r.State == "succeeded" {
					fired[r.Job] = true
				}
			}
		}
		split(again, 1)
		untilCluster(t, again, "the app is in one partition", func(s *sdk.Cluster) bool { return arrived(s, app, 1) })
		order(again, "together")
		split(again, 2)
		untilCluster(t, again, "the app is in two partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 2) })
		order(again, "again")
		listed := map[string]int{}
		for r, err := range again.Runs(within(t), sdk.RunQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			listed[r.Id]++
		}
		for _, id := range slices.Sorted(maps.Values(keys)) {
			if listed[id] != 1 {
				t.Errorf("%s: run %s is listed %d times", i, id, listed[id])
			}
		}
		maps.DeleteFunc(runs, func(key, _ string) bool {
			return strings.HasSuffix(key, ":together") || strings.HasSuffix(key, ":again")
		})
		if err := errors.Join(h.stop(), stop()); err != nil {
			t.Fatal(err)
		}
	}
}

type nobody struct{ sched.Remote }

// freeze freezes a slot of an app for a move, in the directory of a stopped server. It
// calls no method of its sched.Remote.
func freeze(t *testing.T, dir, app string, slot uint8, partition string) {
	t.Helper()
	log, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "journal")})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Config{Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sched.New(sched.Config{
		ID: "s", Journal: local.New(log), Store: st, Modules: mods, Remote: nobody{},
		Inspect: func(context.Context, *modules.Upload, string) (sched.ModuleInfo, error) {
			return sched.ModuleInfo{}, errors.New("nothing is pushed")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	_, err = s.Leave(ctx, app, slot, partition, 30*time.Second)
	end()
	if err := errors.Join(err, <-ended, st.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestBackupOfFrozenSlot: a slot was frozen for its move when its partition was copied,
// and the target partition was copied before it knew of the app. In the restored cluster
// the slot moves there, and takes the app's settings and modules along.
func TestBackupOfFrozenSlot(t *testing.T) {
	w := newSplittable(t)
	ready, stop := w.server(0)
	one := w.works(ready)
	c := client(t, one, adminToken)
	const app = "hot"
	if _, _, err := c.PushModule(within(t), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	name := "job-0"
	for i := 0; job.SlotOf(name) == job.ModuleSlot; i++ {
		name = fmt.Sprint("job-", i)
	}
	if _, err := c.Apply(within(t), &sdk.Job{App: app, Name: name, Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
		t.Fatal(err)
	}
	a, err := c.Trigger(within(t), sdk.Trigger{App: app, Job: name, Key: "k"}) // it waits, because there is no host
	if err != nil {
		t.Fatal(err)
	}
	if at := placementsOf(t, one, []string{app}); at[app] != "main" {
		t.Fatalf("the app began in %v", at)
	}
	var made bytes.Buffer
	if err := errors.Join(backUp(within(t), c, &made), stop()); err != nil {
		t.Fatal(err)
	}

	if _, err := archive.Restore(within(t), &made, w.data(1), nil, nil); err != nil {
		t.Fatal(err)
	}
	freeze(t, w.data(1), app, job.SlotOf(name), "main.2")
	w.etcd, w.partitions = beside(t), 0
	if _, err := node.Grow(within(t), w.grow(1)); err != nil {
		t.Fatal(err)
	}
	ready, stop = w.server(1)
	alone := w.works(ready)
	again := client(t, alone, adminToken)
	untilCluster(t, again, "the slot is in the other partition", func(s *sdk.Cluster) bool {
		for _, sh := range splitOf(s, app).GetShares() {
			if sh.Unit == "main.2" && sh.Slots == 1 {
				return true
			}
		}
		return false
	})
	h := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{Data: filepath.Join(w.dir, "h"), Nameserver: alone.GRPC, TokenFile: filepath.Join(w.dir, "shared"), Ready: ready})
	})
	if r, err := again.Wait(within(t), app, a.RunID); err != nil || r.State != "succeeded" || r.Output != "Hello, you!\n" {
		t.Errorf("the run that waited: %v, %v", r, err)
	}
	if b, err := again.Trigger(within(t), sdk.Trigger{App: app, Job: name, Key: "k"}); err != nil || b.RunID != a.RunID {
		t.Errorf("its key: %v, %v", b, err)
	}
	if _, err := again.SplitApp(within(t), app, 3); err != nil {
		t.Fatal(err)
	}
	untilCluster(t, again, "the app is in three partitions", func(s *sdk.Cluster) bool { return arrived(s, app, 3) })
	if err := errors.Join(h.stop(), stop()); err != nil {
		t.Fatal(err)
	}
}
