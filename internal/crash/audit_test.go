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
	changes, least := int64(10_000), int64(3)
	if testing.Short() {
		changes, least = 1_000, 1
	}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := buildProgram(t, testkit.FreeAddress(t))
	s := p.start(t)
	says := s.await(t, p)
	c := dial(t, says.URL, sdk.Options{Token: says.Token, RetryFor: time.Minute})
	var kills atomic.Int64
	finished := changeMany(t, c, seed, []string{"default"}, func(done int64) bool { return done >= changes && kills.Load() >= least })
	for working := true; working; {
		select {
		case <-finished:
			working = false
		case <-time.After(time.Duration(50+rnd.IntN(500)) * time.Millisecond):
			kills.Add(1)
			s.kill(t)
			s = p.start(t)
			s.await(t, p)
		}
	}
	defer s.kill(t)
	events := checkAudit(t, c, []string{"default"}, 1)
	t.Logf("%d kills, %d events of revisions", kills.Load(), events)
}

// TestKilledAuditOfCluster kills the owners of partitions of a cluster during thousands of changes, so
// that other servers go on with the chains. Each revision has exactly one event.
func TestKilledAuditOfCluster(t *testing.T) {
	changes, least := int64(5_000), int64(3)
	if testing.Short() {
		changes, least = 500, 1
	}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const units = 3
	three := startThree(t, units)
	c := three.dial(t)
	apps := []string{"app0", "app1", "app2"}
	var kills atomic.Int64
	finished := changeMany(t, c, seed, apps, func(done int64) bool { return done >= changes && kills.Load() >= least })
	owner := func(unit int) (address string) {
		until(t, "each partition to have an owner", func() bool {
			s, err := c.Cluster(t.Context())
			if err != nil || len(s.Units) != units {
				return false
			}
			for _, u := range s.Units {
				if u.State != "owned" || three.servers[u.Address] == nil {
					return false
				}
			}
			address = s.Units[unit].Address
			return true
		})
		return address
	}
	for working := true; working; {
		select {
		case <-finished:
			working = false
		case <-time.After(time.Duration(200+rnd.IntN(1000)) * time.Millisecond):
			victim := owner(rnd.IntN(units))
			kills.Add(1)
			three.servers[victim].kill(t)
			three.servers[victim] = three.start(t, victim)
		}
	}
	owner(0)
	events := checkAudit(t, c, apps, units)
	t.Logf("%d kills, %d events of revisions", kills.Load(), events)
}

// changeMany changes jobs and calendars of apps until the number of acknowledged changes is enough. The
// channel is closed then.
func changeMany(t *testing.T, c *sdk.Client, seed uint64, apps []string, enough func(done int64) bool) (finished chan struct{}) {
	const writers, objects = 8, 12
	var done atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)+1))
		all.Go(func() {
			for !enough(done.Load()) && !t.Failed() {
				app, name := apps[rnd.IntN(len(apps))], fmt.Sprintf("o%d-%d", w, rnd.IntN(objects))
				err := change(t, c, rnd, app, name)
				switch {
				case err == nil || errors.Is(err, sdk.ErrNotFound): // a repeated deletion finds nothing
					done.Add(1)
				case errors.Is(err, sdk.ErrUnavailable) || errors.Is(err, sdk.ErrUnknown): // the next change of the object shows what happened
				default:
					t.Errorf("change %s of %s: %v", name, app, err)
				}
			}
		})
	}
	finished = make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	return finished
}

// checkAudit verifies the chains, and that each revision of a job and of a calendar has exactly one
// event. It returns the number of these events.
func checkAudit(t *testing.T, c *sdk.Client, apps []string, partitions int) (events int) {
	t.Helper()
	chains, err := c.VerifyAudit(t.Context())
	if err != nil || len(chains) != partitions {
		t.Fatalf("%v, %v", chains, err)
	}
	for _, x := range chains {
		if !x.Ok {
			t.Fatal(x)
		}
	}
	last := map[string]int64{} // by app, kind and name: the revision of the last event; 0: deleted
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
		object := e.App + " " + kind + " " + e.Object
		had := last[object]
		var before, after int64
		fmt.Sscanf(e.Before, "revision %d", &before) //nolint:errcheck // empty: there was nothing
		fmt.Sscanf(e.After, "revision %d", &after)   //nolint:errcheck // empty: it is deleted
		if before != had || verb != "deleted" && after != had+1 || verb == "deleted" && after != 0 || (verb == "created") != (had == 0) {
			t.Fatalf("event %d of %s: %s from %q to %q, and the revision before it was %d", e.Sequence, object, e.Code, e.Before, e.After, had)
		}
		last[object] = after
	}
	for _, app := range apps {
		for job, err := range c.Jobs(t.Context(), sdk.JobQuery{App: app}) {
			if err != nil {
				t.Fatal(err)
			}
			object := app + " job " + job.Name
			if got := last[object]; got != job.Revision {
				t.Errorf("%s has revision %d, and its last event %d", object, job.Revision, got)
			}
			delete(last, object)
		}
		calendars, err := c.Calendars(t.Context(), app)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range calendars {
			object := app + " calendar " + x.Name
			if got := last[object]; got != x.Revision {
				t.Errorf("%s has revision %d, and its last event %d", object, x.Revision, got)
			}
			delete(last, object)
		}
	}
	for object, revision := range last {
		if revision != 0 {
			t.Errorf("%s is gone, and its last event is about revision %d", object, revision)
		}
	}
	return events
}

// change makes one change of an object: of a job, or of a calendar.
func change(t *testing.T, c *sdk.Client, rnd *rand.Rand, app, name string) error {
	ctx := t.Context()
	switch text := fmt.Sprint(rnd.Uint64()); rnd.IntN(8) {
	case 0:
		return c.Delete(ctx, app, name)
	case 1:
		_, err := c.Pause(ctx, app, name)
		return err
	case 2:
		_, err := c.Resume(ctx, app, name)
		return err
	case 3, 4:
		_, err := c.PutCalendar(ctx, &sdk.Calendar{App: app, Name: name, Description: text, Yearly: []string{"01-01"}})
		return err
	case 5:
		return c.DeleteCalendar(ctx, app, name)
	default:
		_, err := c.Apply(ctx, &sdk.Job{App: app, Name: name, Description: text, Handler: &sdk.Handler{Name: "native:none"}})
		return err
	}
}
