package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
)

// put returns the change to a definition.
func put(def any) *apiv1.Change {
	switch d := def.(type) {
	case *apiv1.Job:
		return &apiv1.Change{Kind: &apiv1.Change_Job{Job: d}}
	case *apiv1.Calendar:
		return &apiv1.Change{Kind: &apiv1.Change_Calendar{Calendar: d}}
	case *apiv1.Alias:
		return &apiv1.Change{Kind: &apiv1.Change_Alias{Alias: d}}
	case *apiv1.ModuleGrants:
		return &apiv1.Change{Kind: &apiv1.Change_Grants{Grants: d}}
	case *apiv1.App:
		return &apiv1.Change{Kind: &apiv1.Change_Settings{Settings: d}}
	}
	panic(fmt.Sprintf("%T is no definition", def))
}

func remove(kind, name string) *apiv1.Change {
	return &apiv1.Change{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: kind, Name: name}}}
}

// on returns a job whose handler is in a module.
func on(module, name string) *apiv1.Job {
	return &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: module, Name: "main"}}
}

// applySet applies a change set, and returns the results in a line.
func (c *client) applySet(changes ...*apiv1.Change) (string, error) {
	r, err := apiv1.NewChangeSetsClient(c.conn).ApplyChangeSet(c.t.Context(), &apiv1.ApplyChangeSetRequest{Changes: changes})
	var results []string
	for _, x := range r.GetResults() {
		results = append(results, x.Result)
	}
	return strings.Join(results, " "), err
}

// problemsOf returns the refusal of a change set.
func problemsOf(err error) *apiv1.Refusal {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*apiv1.Refusal); ok {
			return r
		}
	}
	return nil
}

// TestChangeSet checks that a set changes definitions of all kinds that refer to each other in
// any order, that applying it again changes nothing and makes no revision, and that its
// deletions respect references.
func TestChangeSet(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1", "2")
		night := on("n@prod", "night")
		night.Schedule = &apiv1.Schedule{Cron: "0 0 * * *", Exclude: []string{"holidays"}}
		after := on("n@1", "after")
		after.Dependency = &apiv1.Dependency{Jobs: []string{"night"}}
		flow := &apiv1.Job{Name: "flow", Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a", Job: "leaf"}, {Name: "b", Job: "night", After: []string{"a"}}}}}
		set := func() []*apiv1.Change {
			return []*apiv1.Change{
				put(flow), put(after), put(night), put(on("n@2", "leaf")),
				put(&apiv1.ModuleGrants{Module: "n", Grants: &apiv1.Grants{Enqueue: []string{"leaf"}}}),
				put(&apiv1.Alias{Module: "n", Name: "prod", Version: "1", Labels: map[string]string{"team": "a"}}),
				put(&apiv1.Calendar{Name: "holidays", Dates: []string{"2000-01-02"}}),
				put(&apiv1.App{Name: "default", Description: "text"}),
			}
		}
		if got, err := c.applySet(set()...); err != nil || strings.Count(got, "created") != 8 {
			t.Fatalf("%s, %v", got, err)
		}
		for range 2 {
			if got, err := c.applySet(set()...); err != nil || strings.Count(got, "unchanged") != 8 {
				t.Errorf("again: %s, %v", got, err)
			}
			for kind, name := range map[string]string{"job": "flow", "alias": "n@prod", "calendar": "holidays", "grants": "n", "app": "default"} {
				all, err := apiv1.NewRevisionsClient(c.conn).ListRevisions(t.Context(), &apiv1.ListRevisionsRequest{Kind: kind, Name: name})
				if err != nil || len(all.Revisions) != 1 {
					t.Errorf("%s %s has the revisions %v, %v", kind, name, all, err)
				}
			}
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		if j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "night"}); err != nil || !j.NextAt.AsTime().Equal(time.Date(2000, 1, 3, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("night: %v, %v, want its next time behind the holiday", j, err)
		}

		// An alias moves to a version together with the job that needs it.
		if got, err := c.applySet(put(&apiv1.Alias{Module: "n", Name: "prod", Version: "2"}), put(on("n@2", "leaf")), remove("job", "none")); err != nil || got != "updated unchanged unchanged" {
			t.Errorf("move: %s, %v", got, err)
		}
		if x := c.getAlias(); x.Version != "2" || len(x.Labels) != 0 || len(x.Events) != 2 {
			t.Errorf("the alias is %v", x)
		}

		// Deletions.
		for _, tt := range []struct{ kind, name, namer string }{
			{"job", "leaf", "job flow"}, {"calendar", "holidays", "job night"}, {"alias", "n@prod", "job night"},
		} {
			_, err := c.applySet(remove(tt.kind, tt.name))
			if p := problemsOf(err).GetProblems(); status.Code(err) != codes.FailedPrecondition || len(p) != 1 || !strings.Contains(p[0].Error, tt.namer) {
				t.Errorf("delete %s %s: %v", tt.kind, tt.name, err)
			}
		}
		if got, err := c.applySet(remove("alias", "n@prod"), remove("calendar", "holidays"), put(on("n@2", "night")), remove("job", "leaf"), remove("job", "flow"), remove("grants", "n")); err != nil || got != "deleted deleted updated deleted deleted deleted" {
			t.Errorf("delete: %s, %v", got, err)
		}
		list, err := c.jobs.ListJobs(t.Context(), &apiv1.ListJobsRequest{})
		if err != nil || len(list.Jobs) != 2 {
			t.Errorf("%v, %v", list, err)
		}
		if runs := c.all("", ""); len(runs) != 0 {
			t.Errorf("the changes fired %d runs", len(runs))
		}
	})
}

// TestChangeSetRefused checks that a set with an invalid change changes nothing, and that the
// refusal names each invalid change.
func TestChangeSetRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1")
		if err := c.applyTo("n@1", &apiv1.Job{Name: "old"}); err != nil {
			t.Fatal(err)
		}
		depends := func(name string, on ...string) *apiv1.Job {
			return &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: "n@1", Name: "main"}, Dependency: &apiv1.Dependency{Jobs: on}}
		}
		stale := on("n@1", "old")
		stale.Etag, stale.Description = "0000000000000000", "new"
		many := []*apiv1.Change{}
		for i := range 30 {
			many = append(many, put(on("no@1", fmt.Sprint("m", i))))
		}
		for _, tt := range []struct {
			what    string
			changes []*apiv1.Change
			code    codes.Code
			index   []int32
			says    string
		}{
			{"nothing", nil, codes.InvalidArgument, nil, "no changes"},
			{"an empty change", []*apiv1.Change{put(on("n@1", "a")), {}}, codes.InvalidArgument, []int32{1}, "empty"},
			{"a job without a definition", []*apiv1.Change{put((*apiv1.Job)(nil))}, codes.InvalidArgument, []int32{0}, "missing"},
			{"a job without a name", []*apiv1.Change{put(on("n@1", ""))}, codes.InvalidArgument, []int32{0}, "name"},
			{"the same job twice", []*apiv1.Change{put(on("n@1", "a")), put(on("n@1", "b")), remove("job", "a")}, codes.InvalidArgument, []int32{2}, "twice, first by change 0"},
			{"another app", []*apiv1.Change{put(&apiv1.Calendar{App: "shop", Name: "c"})}, codes.InvalidArgument, []int32{0}, "app shop"},
			{"the deletion of an app", []*apiv1.Change{remove("app", "default")}, codes.InvalidArgument, []int32{0}, "delete.kind"},
			{"a module that is missing", []*apiv1.Change{put(on("n@1", "a")), put(on("n@2", "b"))}, codes.FailedPrecondition, []int32{1}, "n@2"},
			{"an alias that is missing", []*apiv1.Change{put(on("n@prod", "a"))}, codes.FailedPrecondition, []int32{0}, "n@prod"},
			{"an alias to a version that is missing", []*apiv1.Change{put(on("n@prod", "a")), put(&apiv1.Alias{Module: "n", Name: "prod", Version: "2"})}, codes.FailedPrecondition, []int32{0, 1}, "n@2"},
			{"a calendar that is missing", []*apiv1.Change{put(&apiv1.Job{Name: "a", Handler: &apiv1.Handler{Module: "n@1"}, Schedule: &apiv1.Schedule{Cron: "0 0 * * *", Include: []string{"no"}}})}, codes.InvalidArgument, []int32{0}, "no"},
			{"a calendar that the set deletes", []*apiv1.Change{put(&apiv1.Job{Name: "a", Handler: &apiv1.Handler{Module: "n@1"}, Schedule: &apiv1.Schedule{Cron: "0 0 * * *", Include: []string{"no"}}}), remove("calendar", "no")}, codes.InvalidArgument, []int32{0}, "no"},
			{"an upstream job that is missing", []*apiv1.Change{put(depends("a", "b"))}, codes.FailedPrecondition, []int32{0}, `"b"`},
			{"an upstream job that the set deletes", []*apiv1.Change{put(depends("a", "old")), remove("job", "old")}, codes.FailedPrecondition, []int32{0}, `"old"`},
			{"a circle", []*apiv1.Change{put(on("n@1", "x")), put(depends("a", "c")), put(depends("b", "a")), put(depends("c", "b"))}, codes.InvalidArgument, []int32{3}, "c, after which runs a, after which runs b, after which runs c"},
			{"a stale etag", []*apiv1.Change{put(on("n@1", "a")), put(stale)}, codes.Aborted, []int32{1}, "changed meanwhile"},
			{"many", many, codes.FailedPrecondition, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, "(and 29 more)"},
		} {
			_, err := c.applySet(tt.changes...)
			var index []int32
			for _, p := range problemsOf(err).GetProblems() {
				index = append(index, p.Index)
			}
			if status.Code(err) != tt.code || !slices.Equal(index, tt.index) || !strings.Contains(status.Convert(err).Message(), tt.says) {
				t.Errorf("%s: %v, problems of %v, want %v of %v with %q", tt.what, err, index, tt.code, tt.index, tt.says)
			}
		}
		sets := apiv1.NewChangeSetsClient(c.conn)
		other := []*apiv1.Change{put(&apiv1.Calendar{Name: "c", Days: []string{"mon"}})}
		if _, err := sets.ApplyChangeSet(t.Context(), &apiv1.ApplyChangeSetRequest{App: "shop", Changes: other}); status.Code(err) != codes.NotFound {
			t.Errorf("an app that does not exist: %v", err)
		}
		if _, err := sets.ApplyChangeSet(t.Context(), &apiv1.ApplyChangeSetRequest{App: "shop", Changes: other, CreateApp: true, DryRun: true}); err != nil {
			t.Error(err)
		}
		list, err := c.jobs.ListJobs(t.Context(), &apiv1.ListJobsRequest{})
		if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Description != "" {
			t.Errorf("%v, %v", list, err)
		}
		if apps, err := apiv1.NewAppsClient(c.conn).ListApps(t.Context(), &apiv1.ListAppsRequest{}); err != nil || slices.ContainsFunc(apps.Apps, func(a *apiv1.App) bool { return a.Name == "shop" }) {
			t.Errorf("%v, %v: a dry run has created the app", apps, err)
		}
		for what, req := range map[string]*apiv1.ApplyChangeSetRequest{
			"create_app": {App: "shop", Changes: other, CreateApp: true},
			"settings":   {App: "bank", Changes: append(other, put(&apiv1.App{Name: "bank", Weight: 2}))},
		} {
			if _, err := sets.ApplyChangeSet(t.Context(), req); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// large returns a set that the server stores before it applies it: n jobs that name an alias
// and a calendar, and among which each names the one before it.
func large(n int, text string) []*apiv1.Change {
	changes := []*apiv1.Change{put(&apiv1.Calendar{Name: "days", Description: text, Days: []string{"mon", "tue", "wed", "thu", "fri"}}), put(&apiv1.Alias{Module: "n", Name: "prod", Version: "1"})}
	for i := range n {
		j := on("n@prod", fmt.Sprintf("j%05d", i))
		j.Description = text
		j.Schedule = &apiv1.Schedule{Cron: "0 0 1 1 *", Include: []string{"days"}}
		if i > 0 {
			j.Dependency = &apiv1.Dependency{Jobs: []string{fmt.Sprintf("j%05d", i-1)}}
		}
		changes = append(changes, put(j))
	}
	return changes
}

// TestChangeSetPower checks that a large set is applied as a whole or not at all, whichever
// append of the journal the power fails at, and that changes that were acknowledged remain.
func TestChangeSetPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.checkpointEvery = 50 * time.Millisecond
		var d *disk
		w.wrap = func(inner journal.Journal) journal.Journal {
			d = &disk{Journal: inner, note: w.note()}
			return d
		}
		w.start()
		c := w.client()
		c.pushVersions("1")
		const jobs = 700
		states := map[string]int{}
		before, acknowledged := "", ""
		for round := 0; ; round++ {
			next := fmt.Sprint("text ", round)
			d.cutPower(1+round/2, round%2 == 0)
			_, err := c.applySet(large(jobs, next)...)
			if err == nil {
				acknowledged = next
			}
			if !d.isDead() {
				d.spare()
				if err != nil {
					t.Fatal(err)
				}
				if len(states) < 3 || round < 8 {
					t.Fatalf("after %d rounds the results are %v", round, states)
				}
				break
			}
			synctest.Wait()
			w.stopServer()
			w.start()
			c.reconnect(w)
			// The call waits until the set has ended, if the server has continued it.
			if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: on("n@1", "other")}); err != nil && before != "" {
				t.Fatal(err)
			}
			count := map[string]int{}
			for token := ""; ; {
				list, err := c.jobs.ListJobs(t.Context(), &apiv1.ListJobsRequest{Prefix: "j", PageToken: token, PageSize: 1000})
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range list.Jobs {
					count[j.Description]++
				}
				if token = list.NextPageToken; token == "" {
					break
				}
			}
			switch {
			case count[next] == jobs:
				states["applied"]++
				before = next
			case acknowledged == next, len(count) > 1, before != "" && count[before] != jobs, before == "" && len(count) > 0:
				t.Fatalf("round %d: the jobs have the descriptions %v, they had %q before", round, count, before)
			default:
				states["not applied"]++
			}
			if err == nil {
				states["acknowledged"]++
			} else {
				states["without an answer"]++
			}
		}
		t.Logf("%v", states)
		c.close()
		w.close()
	})
}

// TestChangeSetHolds checks that reads and triggers do not wait while a large set is applied,
// and that changes of definitions are made after it, in their order.
func TestChangeSetHolds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.pushVersions("1")
		if err := c.applyTo("n@1", &apiv1.Job{Name: "there"}); err != nil {
			t.Fatal(err)
		}
		stream, err := apiv1.NewProducerClient(c.conn).Produce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.applySet(large(3000, "set")...); err != nil {
				t.Error(err)
			}
		})
		for { // until it is being applied
			if _, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j00000"}); err == nil {
				break
			}
		}
		c.wait(c.trigger("there", ""))
		wg.Go(func() {
			if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "j02998"}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if got, err := c.jobs.BulkJobs(t.Context(), &apiv1.BulkJobsRequest{Action: "pause", Prefix: "j02997"}); err != nil || got.Changed != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
		wg.Go(func() {
			if got, err := c.applySet(put(on("n@1", "j02996"))); err != nil || got != "updated" {
				t.Errorf("%v, %v", got, err)
			}
		})
		// Each message changes a job of the set and creates another, and the next message starts
		// a run of that one.
		const messages = 20
		for i := range messages {
			last, fresh := on("n@1", "j02999"), on("n@1", fmt.Sprint("fresh-", i))
			last.Description = fmt.Sprint("message ", i)
			for _, cmds := range [][]*apiv1.Command{
				{{Kind: &apiv1.Command_Apply{Apply: last}}, {Kind: &apiv1.Command_Apply{Apply: fresh}}},
				{{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: fresh.Name}}}},
			} {
				if err := stream.Send(&apiv1.ProduceRequest{Commands: cmds}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for range 2 * messages {
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range answer.Results {
				if r.Code != 0 {
					t.Errorf("%v", r)
				}
			}
		}
		wg.Wait()
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j02999"})
		if err != nil || j.Description != fmt.Sprint("message ", messages-1) {
			t.Errorf("%v, %v", j, err)
		}
		for _, name := range []string{"j02998", "j02997"} {
			if j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: name}); err != nil || !j.GetPaused() || j.Description != "set" {
				t.Errorf("%v, %v", j, err)
			}
		}
		if got, err := c.applySet(large(3000, "set")...); err != nil || strings.Count(got, "updated") != 2 || strings.Contains(got, "created") {
			t.Errorf("%.200s, %v", got, err)
		}
	})
}

// filling is a journal whose disk is full after a number of appends.
type filling struct {
	journal.Journal
	left atomic.Int64
}

func (f *filling) Append(recs []journal.Record, done func(error)) (uint64, error) {
	if len(recs) > 0 {
		f.left.Add(-1)
	}
	return f.Journal.Append(recs, done)
}

func (f *filling) Room() int64 {
	if f.left.Load() <= 0 {
		return 0
	}
	return f.Journal.Room()
}

// TestChangeSetWaitsForRoom checks that a stored set waits while the disk is full, and that a
// set is refused for which there is no room.
func TestChangeSetWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &filling{}
		w.wrap = func(inner journal.Journal) journal.Journal {
			f.Journal = inner
			return f
		}
		f.left.Store(1 << 40)
		w.start()
		c := w.client()
		defer func() { c.close(); w.close() }()
		c.pushVersions("1")
		f.left.Store(3) // the set, and two of its steps
		done := make(chan error, 1)
		go func() {
			_, err := c.applySet(large(700, "one")...)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		if list, err := c.jobs.ListJobs(t.Context(), &apiv1.ListJobsRequest{PageSize: 1000}); err != nil || len(list.Jobs) == 0 || len(list.Jobs) == 700 || len(done) > 0 {
			t.Errorf("with a full disk there are %d jobs, %v, and the call has ended: %t", len(list.GetJobs()), err, len(done) > 0)
		}
		f.left.Store(1 << 40)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if list, err := c.jobs.ListJobs(t.Context(), &apiv1.ListJobsRequest{PageSize: 1000}); err != nil || len(list.Jobs) != 700 {
			t.Errorf("%d jobs, %v", len(list.GetJobs()), err)
		}
		f.left.Store(0)
		if _, err := c.applySet(large(700, "two")...); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("without room: %v", err)
		}
		f.left.Store(1 << 40)
	})
}

// TestChangeSetBases checks that a set with the state of an object that has changed, or exists and should
// not, is refused as a whole, for each kind and for deletions.
func TestChangeSetBases(t *testing.T) {
	simulate(t, func(t *testing.T, _ *world, c *client) {
		c.pushVersions("1", "2")
		based := func(x *apiv1.Change, base string) *apiv1.Change {
			x.Base = base
			return x
		}
		calendar := func() *apiv1.Calendar { return &apiv1.Calendar{Name: "holidays", Dates: []string{"2000-01-02"}} }
		if got, err := c.applySet(based(put(on("n@1", "j")), "none"), based(put(calendar()), "none"), based(put(&apiv1.App{Name: "default", Description: "text"}), "none")); err != nil || got != "created created created" {
			t.Fatalf("%s, %v", got, err)
		}
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j"})
		if err != nil {
			t.Fatal(err)
		}
		now, err := apiv1.NewCalendarsClient(c.conn).GetCalendar(t.Context(), &apiv1.GetCalendarRequest{Name: "holidays"})
		if err != nil {
			t.Fatal(err)
		}
		base := fmt.Sprintf("%d@%d", now.Revision, now.UpdatedAt.AsTime().UnixMilli())
		for _, moved := range []*apiv1.Change{
			based(put(on("n@2", "j")), "none"), based(put(on("n@2", "j")), "0000000000000000"), based(remove("job", "j"), "0000000000000000"),
			based(put(calendar()), "none"), based(remove("calendar", "holidays"), "2@5"), based(put(&apiv1.App{Name: "default"}), "9@9"),
			based(put(&apiv1.ModuleGrants{Module: "n", Grants: &apiv1.Grants{Enqueue: []string{"j"}}}), "1@1"), based(remove("job", "gone"), "0000000000000000"),
		} {
			if _, err := c.applySet(put(on("n@2", "other")), moved); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "meanwhile") {
				t.Errorf("%v: %v", moved, err)
			}
		}
		if _, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "other"}); status.Code(err) != codes.NotFound {
			t.Errorf("a refused set has changed something: %v", err)
		}
		if got, err := c.applySet(based(put(on("n@2", "j")), j.Etag), based(remove("calendar", "holidays"), base)); err != nil || got != "updated deleted" {
			t.Errorf("%s, %v", got, err)
		}
	})
}
