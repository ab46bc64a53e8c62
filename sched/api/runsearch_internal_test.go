package api

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// TestSearchEndsAfterItsTime: a page of a search ends when its time is over, and the pages together have
// examined each run once.
func TestSearchEndsAfterItsTime(t *testing.T) {
	history, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close() //nolint:errcheck // a test's
	const runs = 1000
	now := time.Now()
	var ended []store.Finished
	for n := range runs {
		id := job.RunID(fmt.Appendf(nil, "%016d", n))
		at := now.UnixMilli() - runs + int64(n)
		row, err := proto.Marshal(&apiv1.RunRow{Id: id[:], App: "default", Job: "j", State: string(job.Succeeded), FinishedMs: at, HasInput: true, Input: fmt.Appendf(nil, "order %03d", n)})
		if err != nil {
			t.Fatal(err)
		}
		ended = append(ended, store.Finished{App: "default", Job: "j", State: string(job.Succeeded), ID: id, FinishedMs: at, Value: row})
	}
	if err := history.Commit(&store.Batch{Applied: 1, Finished: ended}); err != nil {
		t.Fatal(err)
	}
	a := &runsAPI{s: &Services{cfg: Config{Store: history, Epoch: 1}}}
	req := &apiv1.ListRunsRequest{Input: "7", Since: timestamppb.New(now.Add(-time.Hour))}
	pages, examined, found := 0, 0, 0
	for token := ""; pages == 0 || token != ""; pages++ {
		f, err := newRunFilter(req, now)
		if err != nil {
			t.Fatal(err)
		}
		f.search.end = now // it is over after the first run
		if pages%2 > 0 {
			f.search.end = time.Now().Add(time.Hour)
		}
		from, err := a.parseRunsToken(token)
		if err != nil {
			t.Fatal(err)
		}
		page := &apiv1.ListRunsResponse{}
		if err := a.endedRuns(f, from, 10, page); err != nil {
			t.Fatal(err)
		}
		f.search.report(page)
		if pages%2 == 0 && page.Examined != 1 {
			t.Fatalf("page %d has examined %d runs after its time", pages, page.Examined)
		}
		examined, found, token = examined+int(page.Examined), found+len(page.Runs), page.NextPageToken
	}
	if examined != runs || found != 271 {
		t.Errorf("%d pages have examined %d runs and found %d, want %d and 271", pages, examined, found, runs)
	}
}
