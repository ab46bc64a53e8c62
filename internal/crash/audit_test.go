package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestKilledAudit changes jobs and calendars ten thousand times while the server is killed again and
// again. Each revision has exactly one event, those of an object are in the order of its revisions, and
// the chain is whole.
func TestKilledAudit(t *testing.T) {
	const writers, objects = 8, 12
	changes := int64(10_000)
	if testing.Short() {
		changes = 1_000
	}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := buildProgram(t, testkit.FreeAddress(t))
	s := p.start(t)
	says := s.await(t, p)
	c := dial(t, says.URL, sdk.Options{Token: says.Token, RetryFor: time.Minute})
	var done atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)+1))
		all.Go(func() {
			for done.Load() < changes && !t.Failed() {
				name := fmt.Sprintf("o%d-%d", w, rnd.IntN(objects))
				err := change(t, c, rnd, name)
				switch {
				case err == nil || errors.Is(err, sdk.ErrNotFound): // a repeated deletion finds nothing
					done.Add(1)
				case errors.Is(err, sdk.ErrUnavailable) || errors.Is(err, sdk.ErrUnknown): // the next change of the object shows what happened
				default:
					t.Errorf("change %s: %v", name, err)
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	kills := 0
	for working := true; working; {
		select {
		case <-finished:
			working = false
		case <-time.After(time.Duration(50+rnd.IntN(500)) * time.Millisecond):
			kills++
			s.kill(t)
			s = p.start(t)
			s.await(t, p)
		}
	}
	defer s.kill(t)
	if kills < 3 && !testing.Short() {
		t.Errorf("%d kills: the test shows nothing", kills)
	}
	chains, err := c.VerifyAudit(t.Context())
	if err != nil || len(chains) != 1 || !chains[0].Ok {
		t.Fatalf("%v, %v", chains, err)
	}
	last, events := map[string]int64{}, 0 // by kind and name: the revision of the last event; 0: deleted
	var list []*sdk.AuditEvent
	for e, err := range c.AuditEvents(t.Context(), sdk.AuditQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	for i := len(list) - 1; i >= 0; i-- { // the oldest first
		e := list[i]
		kind, verb, _ := strings.Cut(e.Code, ".")
		if kind != "job" && kind != "calendar" {
			continue
		}
		events++
		object, had := kind+" "+e.Object, last[kind+" "+e.Object]
		var before, after int64
		fmt.Sscanf(e.Before, "revision %d", &before) //nolint:errcheck // empty: there was nothing
		fmt.Sscanf(e.After, "revision %d", &after)   //nolint:errcheck // empty: it is deleted
		if before != had || verb != "deleted" && after != had+1 || verb == "deleted" && after != 0 || (verb == "created") != (had == 0) {
			t.Fatalf("event %d of %s: %s from %q to %q, and the revision before it was %d", e.Sequence, object, e.Code, e.Before, e.After, had)
		}
		last[object] = after
	}
	for job, err := range c.Jobs(t.Context(), sdk.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := last["job "+job.Name]; got != job.Revision {
			t.Errorf("job %s has revision %d, and its last event %d", job.Name, job.Revision, got)
		}
		delete(last, "job "+job.Name)
	}
	calendars, err := c.Calendars(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range calendars {
		if got := last["calendar "+x.Name]; got != x.Revision {
			t.Errorf("calendar %s has revision %d, and its last event %d", x.Name, x.Revision, got)
		}
		delete(last, "calendar "+x.Name)
	}
	for object, revision := range last {
		if revision != 0 {
			t.Errorf("%s is gone, and its last event is about revision %d", object, revision)
		}
	}
	t.Logf("%d kills, %d acknowledged calls, %d events of revisions", kills, done.Load(), events)
}

// change makes one change of an object: of a job, or of a calendar.
func change(t *testing.T, c *sdk.Client, rnd *rand.Rand, name string) error {
	ctx := t.Context()
	switch text := fmt.Sprint(rnd.Uint64()); rnd.IntN(8) {
	case 0:
		return c.Delete(ctx, "", name)
	case 1:
		_, err := c.Pause(ctx, "", name)
		return err
	case 2:
		_, err := c.Resume(ctx, "", name)
		return err
	case 3, 4:
		_, err := c.PutCalendar(ctx, &sdk.Calendar{Name: name, Description: text, Yearly: []string{"01-01"}})
		return err
	case 5:
		return c.DeleteCalendar(ctx, "", name)
	default:
		_, err := c.Apply(ctx, &sdk.Job{Name: name, Description: text, Handler: &sdk.Handler{Name: "native:none"}})
		return err
	}
}
