package sched_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
)

// between is a journal that calls a function after a batch is durable and before the
// server is told. Later batches may be reported first.
type between struct {
	journal.Journal
	mu   sync.Mutex
	then func(records []journal.Record) // called with the records of each batch; nil: none
}

func (b *between) Append(records []journal.Record, done func(error)) (uint64, error) {
	b.mu.Lock()
	then := b.then
	b.mu.Unlock()
	if then == nil {
		return b.Journal.Append(records, done)
	}
	kept := copied(records)
	return b.Journal.Append(records, func(err error) {
		go func() {
			then(kept)
			done(err)
		}()
	})
}

func (b *between) set(then func([]journal.Record)) {
	b.mu.Lock()
	b.then = then
	b.mu.Unlock()
}

// TestBackfillOfAJobThatChanges changes a job after the first of several batches of a
// backfill. Times that the new schedule does not plan get no run.
func TestBackfillOfAJobThatChanges(t *testing.T) {
	hourly := func() *apiv1.Job {
		return &apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Cron: "0 * * * *", Exclude: []string{"off"}}}
	}
	for _, tc := range []struct {
		name   string
		change func(ctx context.Context, c *client, cals apiv1.CalendarsClient)
		code   codes.Code
		runs   int
	}{
		{"parameters", func(_ context.Context, c *client, _ apiv1.CalendarsClient) {
			j := hourly()
			j.Input, j.Priority = "new", 3
			c.apply(j)
		}, codes.OK, 1000},
		{"schedule", func(_ context.Context, c *client, _ apiv1.CalendarsClient) {
			j := hourly()
			j.Schedule.Cron = "30 * * * *"
			c.apply(j)
		}, codes.Aborted, 256},
		{"calendar", func(ctx context.Context, _ *client, cals apiv1.CalendarsClient) {
			put := &apiv1.Calendar{Name: "off", Days: []string{"sun"}}
			if _, err := cals.PutCalendar(ctx, &apiv1.PutCalendarRequest{Calendar: put}); err != nil {
				t.Error(err)
			}
		}, codes.Aborted, 256},
		{"deleted", func(ctx context.Context, c *client, _ apiv1.CalendarsClient) {
			if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
				t.Error(err)
			}
		}, codes.NotFound, 256},
		{"another one of its name", func(ctx context.Context, c *client, _ apiv1.CalendarsClient) {
			if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
				t.Error(err)
			}
			c.apply(hourly())
		}, codes.Aborted, 256},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b *between
			wrapped := func(t *testing.T, w *world, c *client) {
				w.stopServer()
				w.wrap = func(j journal.Journal) journal.Journal { b = &between{Journal: j}; return b }
				w.start()
				c.reconnect(w)
				w.removeHost("h1") // the runs stay live
				cals := apiv1.NewCalendarsClient(c.conn)
				if _, err := cals.PutCalendar(t.Context(), &apiv1.PutCalendarRequest{Calendar: &apiv1.Calendar{Name: "off", Yearly: []string{"02-29"}}}); err != nil {
					t.Fatal(err)
				}
				c.apply(hourly())
				until := time.Now()
				b.set(func([]journal.Record) {
					b.set(nil)
					tc.change(t.Context(), c, cals)
				})
				resp, err := c.jobs.BackfillJob(t.Context(), &apiv1.BackfillJobRequest{
					Name: "j", From: timestamppb.New(until.Add(-1000 * time.Hour)), Until: timestamppb.New(until),
				})
				if status.Code(err) != tc.code {
					t.Errorf("%v, %v: want %s", resp, err, tc.code)
				}
				if err != nil && !strings.Contains(err.Error(), "256 runs were accepted") {
					t.Errorf("it does not say how far it came: %v", err)
				}
				if got := len(c.all("j", "live")); got != tc.runs {
					t.Errorf("%d runs, want %d", got, tc.runs)
				}
			}
			simulate(t, wrapped)
		})
	}
}

// TestBackfillTwiceAtOnce checks that each planned time has one run when several callers
// backfill the same span while its runs end.
func TestBackfillTwiceAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.addHost("h2", 64)
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Cron: "0 * * * *"}})
		until := time.Now()
		var accepted, existing [4]int32
		var wg sync.WaitGroup
		for i := range accepted {
			wg.Go(func() {
				resp, err := c.jobs.BackfillJob(t.Context(), &apiv1.BackfillJobRequest{
					Name: "j", From: timestamppb.New(until.Add(-1000 * time.Hour)), Until: timestamppb.New(until),
				})
				if err != nil {
					t.Error(err)
				}
				accepted[i], existing[i] = resp.GetAccepted(), resp.GetExisting()
			})
		}
		wg.Wait()
		sum := int32(0)
		for i := range accepted {
			sum += accepted[i]
			if accepted[i]+existing[i] != 1000 {
				t.Errorf("caller %d: %d new and %d existing", i, accepted[i], existing[i])
			}
		}
		time.Sleep(time.Minute)
		if calls := w.handlers.of("j"); sum != 1000 || len(calls) != 1000 {
			t.Errorf("%d were accepted and %d ran, want 1000", sum, len(calls))
		}
	})
}
