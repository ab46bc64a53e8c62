package sched_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestListsOfLargeJobs lists jobs whose inputs together exceed the message limit: in one
// page without inputs, and with inputs in pages of at most 4 MiB, which every client
// accepts.
func TestListsOfLargeJobs(t *testing.T) {
	simulate(t, func(t *testing.T, _ *world, c *client) {
		const jobs = 200
		input := strings.Repeat("x", 60_000)
		for i := range jobs {
			def := &apiv1.Job{App: "hog", Name: fmt.Sprintf("job-%03d", i), Handler: &apiv1.Handler{Name: "native:n"}, Input: input}
			if _, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: def}); err != nil {
				t.Fatal(err)
			}
		}
		for _, with := range []bool{false, true} {
			var names []string
			pages := 0
			for token := ""; ; pages++ {
				page, err := c.jobs.ListJobs(context.Background(), &apiv1.ListJobsRequest{App: "hog", PageSize: 1000, PageToken: token, WithInput: with})
				if err != nil {
					t.Fatal(err)
				}
				if n := proto.Size(page); n > 4<<20 {
					t.Errorf("a page has %d bytes", n)
				}
				for _, j := range page.Jobs {
					names = append(names, j.Name)
					if (j.Input == input) != with || j.InputBytes != nil {
						t.Fatalf("%s has an input of %d bytes, with inputs: %t", j.Name, len(j.Input), with)
					}
				}
				if token = page.NextPageToken; token == "" {
					break
				}
			}
			for i, name := range names {
				if name != fmt.Sprintf("job-%03d", i) {
					t.Fatalf("job %d of the list is %s", i, name)
				}
			}
			if len(names) != jobs || (pages > 0) != with {
				t.Errorf("%d jobs in %d pages, with inputs: %t", len(names), pages+1, with)
			}
		}
	})
}

// TestListsOfLongErrors lists runs whose errors together exceed one page.
func TestListsOfLongErrors(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		const runs = 100
		w.handlers.byJob["loud"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: strings.Repeat("x", 60_000), Code: "loud"}
		}
		c.apply(&apiv1.Job{Name: "loud"})
		want := map[string]bool{}
		for range runs {
			id := c.trigger("loud", "")
			c.wait(id)
			want[id] = true
		}
		pages, bytes := 0, 0
		for token := ""; ; {
			page, err := c.runs.ListRuns(context.Background(), &apiv1.ListRunsRequest{Job: "loud", PageSize: 1000, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			pages++
			if n := proto.Size(page); n > 4<<20 {
				t.Errorf("a page has %d bytes", n)
			}
			for _, r := range page.Runs {
				if !want[r.Id] {
					t.Errorf("the run %s is in the list twice, or was never made", r.Id)
				}
				delete(want, r.Id)
				bytes += len(r.Error)
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if len(want) > 0 || pages < 2 || bytes < runs*50_000 {
			t.Errorf("%d runs are left out, %d bytes of errors came in %d pages", len(want), bytes, pages)
		}
	})
}

// TestListWhileRunsEnd lists runs in pages and lets some end after the page that shows them
// as live: the history behind it does not show them again, and shows all others.
func TestListWhileRunsEnd(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["long"] = func(ctx context.Context, _ runtime.Task, _ runtime.Sink) runtime.Result {
			<-ctx.Done()
			return runtime.Result{Outcome: runtime.Stopped, Code: "cancelled"}
		}
		c.apply(&apiv1.Job{Name: "long"})
		c.apply(&apiv1.Job{Name: "short"})
		want := map[string]string{} // by id: the state in the list
		for range 5 {
			id := c.trigger("short", "")
			c.wait(id)
			want[id] = "succeeded"
		}
		var live []string
		for range 4 {
			id := c.trigger("long", "")
			want[id], live = "live", append(live, id)
		}
		time.Sleep(time.Second)
		for size := range 9 {
			shown := map[string]int{}
			token, ended := "", ""
			for pages := 0; ; pages++ {
				page, err := c.runs.ListRuns(context.Background(), &apiv1.ListRunsRequest{PageSize: int32(size + 4), PageToken: token})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Runs {
					shown[r.Id]++
					if live := r.FinishedAt == nil; live != (want[r.Id] == "live") {
						t.Errorf("pages of %d: run %s is %s", size+4, r.Id, r.State)
					}
				}
				if pages == 0 && len(live) > 0 { // it is on this page, and ends before the next
					id := live[0]
					live = live[1:]
					time.Sleep(time.Millisecond)
					if _, err := c.runs.CancelRun(context.Background(), &apiv1.CancelRunRequest{Id: id}); err != nil {
						t.Fatal(err)
					}
					c.wait(id)
					ended = id
				}
				if token = page.NextPageToken; token == "" {
					break
				}
			}
			for id := range want {
				if shown[id] != 1 {
					t.Errorf("pages of %d: run %s is there %d times", size+4, id, shown[id])
				}
			}
			if ended != "" {
				want[ended] = "stopped"
			}
		}
	})
}
