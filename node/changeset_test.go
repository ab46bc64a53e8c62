package node_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestChangeSetInCluster splits an app that has no job yet over three partitions of two
// servers, and applies change sets to it through either server.
func TestChangeSetInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	const app, jobs = "set", 400
	definitions := func(text string) []proto.Message {
		all := []proto.Message{&sdk.Calendar{App: app, Name: "days", Description: text, Days: []string{"sun"}}}
		for i := range jobs {
			all = append(all, &sdk.Job{
				App: app, Name: fmt.Sprintf("job-%03d", i), Description: text, Handler: &sdk.Handler{Name: "native:none"},
				Schedule: &sdk.Schedule{Cron: "0 0 1 1 *", Exclude: []string{"days"}},
			})
		}
		return all
	}
	if _, err := c.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: app, Definitions: []proto.Message{&sdk.Calendar{App: app, Name: "seed", Days: []string{"mon"}}}, CreateApp: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SplitApp(t.Context(), app, 3); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) { // real processes
		s, err := c.Cluster(t.Context())
		if err == nil && arrived(s, app, 3) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the slots of an app without jobs do not move: %v, %v", splitOf(s, app), err)
		}
	}
	for i, want := range []struct {
		text   string
		result sdk.Result
	}{{"one", sdk.Created}, {"one", sdk.Unchanged}, {"two", sdk.Updated}} {
		from := w.client([]string{"a", "b"}[i%2])
		results, err := from.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: app, Definitions: definitions(want.text)})
		if err != nil || len(results) != jobs+1 {
			t.Fatalf("set %d: %d results, %v", i, len(results), err)
		}
		for k, r := range results {
			if r != want.result {
				t.Fatalf("set %d: change %d is %s, want %s", i, k, r, want.result)
			}
		}
		n := 0
		for job, err := range c.Jobs(t.Context(), sdk.JobQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; job.GetDescription() != want.text || job.GetNextAt() == nil {
				t.Errorf("set %d: %v", i, job)
			}
		}
		if n != jobs {
			t.Errorf("set %d: %d jobs, want %d", i, n, jobs)
		}
	}
	bad := definitions("three")
	bad[300].(*sdk.Job).Handler = &sdk.Handler{Module: "none@1"}
	_, err := c.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: app, Definitions: bad})
	var refused *sdk.Error
	if !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Index != 300 {
		t.Errorf("a module that is missing: %v", err)
	}
	results, err := c.ApplyChangeSet(t.Context(), sdk.ChangeSet{App: app, Definitions: definitions("two")[:jobs/2+1], Deletions: deletions(definitions("two")[jobs/2+1:])})
	if err != nil || results[0] != sdk.Unchanged || results[jobs] != sdk.Deleted {
		t.Errorf("deletions: %v, %v", results, err)
	}
	for job, err := range c.Jobs(t.Context(), sdk.JobQuery{App: app}) {
		if err != nil || job.GetName() >= fmt.Sprintf("job-%03d", jobs/2) {
			t.Errorf("left: %v, %v", job, err)
		}
	}
}

func deletions(definitions []proto.Message) (all []sdk.Object) {
	for _, d := range definitions {
		all = append(all, sdk.Object{Kind: sdk.KindJob, Name: d.(*sdk.Job).GetName()})
	}
	return all
}
