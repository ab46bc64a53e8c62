package sched_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// page returns a page with the oldest events first.
func (a *audited) page(q *apiv1.ListAuditEventsRequest) *apiv1.ListAuditEventsResponse {
	a.t.Helper()
	q.OldestFirst = true
	page, err := apiv1.NewAuditClient(a.c.conn).ListAuditEvents(a.admin, q)
	if err != nil {
		a.t.Fatal(err)
	}
	return page
}

// apply creates or changes a job, which makes one event.
func (a *audited) apply(name, text string) {
	a.t.Helper()
	if _, err := a.c.jobs.ApplyJob(a.admin, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: name, Description: text, Handler: &apiv1.Handler{Name: "native:none"}}}); err != nil {
		a.t.Fatal(err)
	}
}

// TestAuditOldestFirst follows the log while changes are made, and while the server ends by power cuts. Each
// event comes once and in its order, also for a reader that begins again with an older token.
func TestAuditOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		r := rand.New(rand.NewPCG(5, 6))
		var seen []uint64
		var tokens []string // before each page
		token, made := "", 0
		for n := range 300 {
			for range r.IntN(4) {
				a.apply(fmt.Sprint("j", r.IntN(3)), fmt.Sprint(made))
				made++
			}
			if n%50 == 49 {
				a.restart()
			}
			for {
				tokens = append(tokens, token)
				page := a.page(&apiv1.ListAuditEventsRequest{PageSize: int32(1 + r.IntN(5)), PageToken: token})
				for _, e := range page.Events {
					seen = append(seen, e.Sequence)
				}
				if token = page.NextPageToken; len(page.Gaps) > 0 {
					t.Fatal(page.Gaps)
				}
				if !page.More {
					break
				}
			}
		}
		if len(seen) != made {
			t.Errorf("%d of %d events", len(seen), made)
		}
		for i, sequence := range seen {
			if sequence != uint64(i+1) {
				t.Fatalf("event %d comes at place %d", sequence, i+1)
			}
		}
		for _, old := range tokens {
			page := a.page(&apiv1.ListAuditEventsRequest{PageSize: 1, PageToken: old})
			want := uint64(1)
			if old != "" {
				if _, err := fmt.Sscanf(old, "main=%d@", &want); err != nil {
					t.Fatal(old, err)
				}
				want++
			}
			switch {
			case want <= uint64(made) && (len(page.Events) != 1 || page.Events[0].Sequence != want),
				want > uint64(made) && (len(page.Events) != 0 || page.More):
				t.Fatalf("behind %q: %v", old, page)
			}
		}
		// Events outside the selection are no gap, and the token is behind them.
		page := a.page(&apiv1.ListAuditEventsRequest{PageSize: 1000, Code: "job.created"})
		if len(page.Events) != 3 || len(page.Gaps) != 0 || page.NextPageToken[:strings.Index(page.NextPageToken, "@")] != fmt.Sprint("main=", made) {
			t.Errorf("%v", page)
		}
		page = a.page(&apiv1.ListAuditEventsRequest{Since: timestamppb.New(time.Now().Add(time.Hour))})
		if len(page.Events) != 0 || len(page.Gaps) != 0 || page.More {
			t.Errorf("%v", page)
		}
		since := time.Now().Add(time.Minute)
		time.Sleep(time.Hour)
		a.apply("late", "")
		page = a.page(&apiv1.ListAuditEventsRequest{Since: timestamppb.New(since)})
		if len(page.Events) != 1 || page.Events[0].Object != "late" || len(page.Gaps) != 0 {
			t.Errorf("%v", page)
		}
	})
}

// TestAuditRestored continues with a token of a log that was longer: the server was restored from a backup.
// The answer is an error and no silent wait until the log is as long again.
func TestAuditRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		first := a.page(&apiv1.ListAuditEventsRequest{})
		if len(first.Events) != 0 || first.NextPageToken == "" || first.More {
			t.Errorf("an empty log: %v", first)
		}
		for n := range 5 {
			a.apply("j", fmt.Sprint(n))
		}
		for token, want := range map[string]codes.Code{"main=5@0": codes.OK, "main=6@0": codes.FailedPrecondition, "main=900@12345": codes.FailedPrecondition, "main=x": codes.InvalidArgument} {
			_, err := apiv1.NewAuditClient(a.c.conn).ListAuditEvents(a.admin, &apiv1.ListAuditEventsRequest{OldestFirst: true, PageToken: token})
			if status.Code(err) != want {
				t.Errorf("with the token %s: %v, want %v", token, err, want)
			}
		}
		if page := a.page(&apiv1.ListAuditEventsRequest{PageToken: first.NextPageToken}); len(page.Events) != 5 || len(page.Gaps) != 0 {
			t.Errorf("with the token of an empty log: %v", page)
		}
	})
}

// TestAuditTrimmed makes so many events that the log removes its oldest ones, between two pages of a reader.
func TestAuditTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &audited{world: newWorld(t), t: t}
		a.guard, a.checkpointEvery, a.snapshotEvery, a.auditBytes = guardOfTest, 50*time.Millisecond, time.Second, 64<<10
		a.start()
		a.c, a.admin = a.client(), withToken(t, adminOfTest)
		defer a.end()
		const all = 1000
		for n := range 10 {
			a.apply("j", fmt.Sprint(n))
		}
		token := a.page(&apiv1.ListAuditEventsRequest{PageSize: 1000}).NextPageToken
		for n := range all - 10 {
			a.apply("j", fmt.Sprint("later ", n))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, from := range []string{token, ""} {
			page := a.page(&apiv1.ListAuditEventsRequest{PageSize: 1000, PageToken: from})
			first := uint64(1)
			if from != "" {
				first = 11
			}
			if len(page.Gaps) != 1 || page.Gaps[0].First != first || len(page.Events) < 100 || len(page.Events) > 900 {
				t.Fatalf("behind %q: %d events and the gaps %v", from, len(page.Events), page.Gaps)
			}
			for i, e := range page.Events {
				if e.Sequence != page.Gaps[0].Last+uint64(i+1) {
					t.Fatalf("behind %q: the event %d is at place %d after the gap %v", from, e.Sequence, i, page.Gaps)
				}
			}
			if last := page.Events[len(page.Events)-1].Sequence; last != all {
				t.Errorf("the last event is %d", last)
			}
			if again := a.page(&apiv1.ListAuditEventsRequest{PageToken: page.NextPageToken}); len(again.Events)+len(again.Gaps) > 0 {
				t.Errorf("the gap is told again: %v", again)
			}
		}
		// What a selection leaves out is no gap.
		if page := a.page(&apiv1.ListAuditEventsRequest{Since: timestamppb.New(time.Unix(0, 0))}); len(page.Gaps) > 0 {
			t.Errorf("with a time: %v", page.Gaps)
		}
	})
}

// TestAuditGap removes events from the log: a reader learns which ones it does not get, once, and goes on.
func TestAuditGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		for n := range 40 {
			a.apply(fmt.Sprint("job-", n), "")
			time.Sleep(time.Second) // each in a batch of its own
		}
		if c := a.verify(); !c.Ok || c.Events != 40 {
			t.Fatal(c)
		}
		files, err := filepath.Glob(filepath.Join(a.dir, "*", "audit", "*.seg"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"job-0", "job-19", "job-20"} { // the events 1, 20 and 21
			at := strings.Index(string(content), name)
			content[at+4] ^= 1
		}
		if err := os.WriteFile(files[0], content, 0); err != nil {
			t.Fatal(err)
		}
		var gaps []string
		sequences, token := 0, ""
		for {
			page := a.page(&apiv1.ListAuditEventsRequest{PageSize: 7, PageToken: token})
			for _, g := range page.Gaps {
				gaps = append(gaps, fmt.Sprintf("%s %d-%d", g.Partition, g.First, g.Last))
			}
			sequences += len(page.Events)
			if token = page.NextPageToken; !page.More {
				break
			}
		}
		if fmt.Sprint(gaps) != "[main 1-1 main 20-21]" || sequences != 37 {
			t.Errorf("%d events, the gaps %v", sequences, gaps)
		}
	})
}
