package sched_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// The tests below reproduce failures that the simulation found, each as small as
// possible.

// TestGivenUpTimesStayGivenUp checks that a planned time which was skipped, or whose run
// was cancelled early, is not planned again when the schedule is set again.
func TestGivenUpTimesStayGivenUp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		again := func() {
			if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
		}
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Cron: "* * * * *"}})
		start := time.Now()
		if _, err := c.jobs.SkipNext(ctx, &apiv1.SkipNextRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		again()
		time.Sleep(2*time.Minute - 500*time.Millisecond) // the second time is armed
		if n := len(w.handlers.of("j")); n != 0 {
			t.Errorf("the skipped time ran")
		}
		live := c.all("j", "armed")
		if len(live) != 1 {
			t.Fatalf("armed: %v", live)
		}
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: live[0].Id}); err != nil {
			t.Fatal(err)
		}
		again()
		time.Sleep(time.Minute + time.Second)
		calls := w.handlers.of("j")
		if len(calls) != 1 || calls[0].planned.Sub(start.Truncate(time.Minute)) != 3*time.Minute {
			t.Errorf("calls %v", calls)
		}
	})
}

// TestDelayIsResumedOnce checks that a delay schedule which is paused and resumed during
// a run waits for the end of that run, and does not plan two runs.
func TestDelayIsResumedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		w.handlers.byJob["j"] = sleeping(30 * time.Second)
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Delay: "10s"}})
		time.Sleep(15 * time.Second)
		for range 2 {
			if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
			j, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{Name: "j"})
			if err != nil || j.NextAt != nil {
				t.Fatalf("resumed while a run is live: %v, %v", j, err)
			}
		}
		time.Sleep(5 * time.Minute)
		calls := w.handlers.of("j")
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].at.Sub(calls[i-1].at); gap < 40*time.Second || gap > 41*time.Second {
				t.Errorf("run %d began %s after the one before", i, gap)
			}
		}
		if len(calls) != 8 {
			t.Errorf("%d runs", len(calls))
		}
	})
}

// TestDelayGoesOnBehindWhatWasGivenUp checks that a run of a delay schedule that was
// skipped or cancelled early is not planned again, even if the next time follows only
// from the start of the schedule, or if the schedule is paused and resumed. The next run
// is planned one whole delay after the given-up time, even if that time is still ahead.
func TestDelayGoesOnBehindWhatWasGivenUp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		from := time.Now().Add(10 * time.Second).UTC()
		const short, long = 300 * time.Millisecond, time.Second
		next := map[string]time.Time{
			"cancelled": from.Add(short), "skipped": from.Add(short), "resumed": from.Add(short),
			"cancelled-long": from.Add(long), "skipped-long": from.Add(long),
		}
		for name := range next {
			delay := short
			if strings.HasSuffix(name, "-long") {
				delay = long
			}
			c.apply(&apiv1.Job{Name: name, Schedule: &apiv1.Schedule{Delay: delay.String(), From: from.Format(time.RFC3339Nano)}})
		}
		time.Sleep(time.Until(from.Add(-long / 2))) // the runs are armed, and a long delay from now ends after from
		for name := range next {
			switch {
			case strings.HasPrefix(name, "skipped"):
				if _, err := c.jobs.SkipNext(t.Context(), &apiv1.SkipNextRequest{Name: name}); err != nil {
					t.Fatal(err)
				}
			default:
				if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: c.all(name, "armed")[0].Id}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "resumed"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.jobs.ResumeJob(t.Context(), &apiv1.ResumeJobRequest{Name: "resumed"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(from.Add(5 * time.Second)))
		for name, at := range next {
			seen := map[string]bool{}
			for _, r := range c.all(name, "") {
				if seen[r.Id] {
					t.Errorf("%s: the run for %s is there twice", name, r.PlannedAt.AsTime())
				}
				seen[r.Id] = true
			}
			calls := w.handlers.of(name)
			if len(calls) == 0 || !calls[0].planned.Equal(at) {
				t.Errorf("%s: calls %v, the schedule begins at %s, the next time is %s", name, calls, from, at)
			}
		}
	})
}

// TestOrderAfterARestart checks that after a restart a scheduled run which waits for a
// host is still ahead of a later run.
func TestOrderAfterARestart(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{After: "5s"}, Overlap: &apiv1.Overlap{Policy: "queue"}})
		time.Sleep(6 * time.Second)
		later := c.trigger("j", "")
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(time.Second)
		w.addHost("h1", 1)
		c.wait(later)
		if calls := w.handlers.of("j"); len(calls) != 2 || calls[1].run != later {
			t.Errorf("calls %v, the later run is %s", calls, later)
		}
	})
}

// TestBackfillWithADeadline checks that a job with a deadline can be backfilled, and only
// for past times.
func TestBackfillWithADeadline(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.apply(&apiv1.Job{Name: "j", Deadline: "1m", Schedule: &apiv1.Schedule{Cron: "0 * * * *"}})
		now := time.Now()
		resp, err := c.jobs.BackfillJob(t.Context(), &apiv1.BackfillJobRequest{
			Name: "j", From: timestamppb.New(now.Add(-3*time.Hour + time.Minute)), Until: timestamppb.New(now.Add(3 * time.Hour)),
		})
		if err != nil || resp.Accepted != 2 {
			t.Fatalf("backfill: %v, %v", resp, err)
		}
		time.Sleep(time.Second)
		if got := states(c.all("j", "")); count(got, "succeeded") != 2 {
			t.Errorf("backfilled: %q", got)
		}
	})
}

// TestSentBeforeThePowerFailed checks that a task which was sent right before a power
// failure is not sent again: its host reconnects later than others, and first reports the
// task.
func TestSentBeforeThePowerFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 0)
		s.ledger.do = sleeping(20 * time.Second)
		s.w.start()
		s.c = s.w.client()
		s.c.push()
		for _, id := range []string{"a", "b"} {
			m := &machine{w: s.w, id: id, slots: 1, ledger: s.ledger}
			s.machines = append(s.machines, m)
			m.start()
		}
		s.c.apply(&apiv1.Job{Name: "j", Deadline: "2s"})
		time.Sleep(time.Second)
		run := s.c.trigger("j", "")
		synctest.Wait()
		execs := s.ledger.execs
		if len(execs) != 1 || len(s.disk.lazy) == 0 {
			t.Fatalf("%d tasks began, %d records wait", len(execs), len(s.disk.lazy))
		}
		s.disk.cutPower(1, false)
		if _, err := s.c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "j"}); err == nil {
			t.Fatal("the power did not fail")
		}
		s.stopServer(true)
		has := s.machines[slices.IndexFunc(s.machines, func(m *machine) bool { return m.id == execs[0].host })]
		has.sever()
		s.w.start()
		s.c.reconnect(s.w)
		time.Sleep(time.Second)
		has.heal()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r, err := s.c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: run})
		if err != nil || r.State != string(job.Succeeded) || len(r.Attempts) != 1 || len(s.ledger.execs) != 1 {
			t.Errorf("%d tasks began; %v, %v", len(s.ledger.execs), r, err)
		}
		// A run that no host has is released when the recovery is over. By then its
		// deadline has passed.
		again := s.c.trigger("j", "")
		synctest.Wait()
		s.disk.cutPower(1, false)
		s.c.jobs.ResumeJob(t.Context(), &apiv1.ResumeJobRequest{Name: "j"}) //nolint:errcheck // the power fails
		s.stopServer(true)
		for _, m := range s.machines {
			m.crash()
			m.start()
		}
		s.w.start()
		s.c.reconnect(s.w)
		time.Sleep(time.Minute)
		if r, err := s.c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: again}); err != nil || r.Code != "deadline" {
			t.Errorf("%v, %v", r, err)
		}
		for _, m := range s.machines {
			m.stop()
		}
		s.c.close()
		s.stopServer(false)
	})
}

// TestHostsThatCannotSayWhatTheyHave checks that a run which is maybe dispatched is not
// sent again while the server cannot accept its host, because the disk is full or the
// journal is replayed, nor after an orderly stop before that host reported. Runs known to
// execute are not lost meanwhile, and runs that become due meanwhile do not wait.
func TestHostsThatCannotSayWhatTheyHave(t *testing.T) {
	for name, between := range map[string]func(s *sim, has, other *machine){
		"replayed": func(s *sim, has, other *machine) {
			other.start()
			time.Sleep(time.Second)
			synctest.Wait()
			if n := len(s.ledger.execs); n != 3 {
				s.t.Errorf("%d tasks began before the host is back", n)
			}
			has.heal()
		},
		"refused": func(s *sim, has, other *machine) {
			s.disk.fill(0)
			has.heal()
			time.Sleep(14 * time.Second) // longer than the time after which a host is lost
			s.disk.free()
			other.start()
		},
		"stopped": func(s *sim, has, other *machine) {
			other.start()
			time.Sleep(time.Second)
			s.stopServer(false)
			s.w.start()
			s.c.reconnect(s.w)
			time.Sleep(time.Second)
			has.heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, 2) // a seed without a standby, which would replay the journal earlier
				long := sleeping(time.Minute)
				s.ledger.do = func(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
					if t.Job == "soon" {
						return runtime.Result{Outcome: runtime.Succeeded}
					}
					return long(ctx, t, sink)
				}
				s.w.start()
				s.c = s.w.client()
				s.c.push()
				m := &machine{w: s.w, id: "a", slots: 2, ledger: s.ledger}
				s.machines = append(s.machines, m)
				m.start()
				s.c.apply(&apiv1.Job{Name: "j"})
				s.c.apply(&apiv1.Job{Name: "soon", Schedule: &apiv1.Schedule{After: "2500ms"}}) // due after the crash
				known := s.c.trigger("j", "")
				time.Sleep(time.Second)
				sent := s.c.trigger("j", "")
				synctest.Wait()
				if len(s.ledger.execs) != 2 || len(s.disk.lazy) == 0 {
					t.Fatalf("%d tasks began, %d records wait", len(s.ledger.execs), len(s.disk.lazy))
				}
				s.disk.cutPower(1, false)
				if _, err := s.c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "j"}); err == nil {
					t.Fatal("the power did not fail")
				}
				s.stopServer(true)
				m.sever()
				other := &machine{w: s.w, id: "b", slots: 2, ledger: s.ledger} // a free host that could take the run
				s.machines = append(s.machines, other)
				if name == "replayed" {
					s.replay = 5 * time.Second
				}
				s.w.start()
				s.c.reconnect(s.w)
				between(s, m, other)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				for _, id := range []string{known, sent} {
					r, err := s.c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: id})
					if err != nil || r.State != string(job.Succeeded) || len(r.Attempts) != 1 {
						t.Errorf("%v, %v", r, err)
					}
				}
				if n := len(s.ledger.execs); n != 3 {
					t.Errorf("%d tasks began", n)
				}
				for _, m := range s.machines {
					m.stop()
				}
				s.c.close()
				s.stopServer(false)
			})
		})
	}
}

// TestFreeSlotsFirst checks that runs do not wait at one host while another one has free
// slots.
func TestFreeSlotsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 0)
		s.ledger.do = sleeping(time.Minute)
		s.w.start()
		s.c = s.w.client()
		s.c.push()
		s.c.apply(&apiv1.Job{Name: "j", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 12}})
		for i, slots := range []int{6, 4, 2} {
			m := &machine{w: s.w, id: string(rune('a' + i)), slots: slots, ledger: s.ledger}
			s.machines = append(s.machines, m)
			m.start()
		}
		time.Sleep(time.Second)
		s.c.trigger("j", "") // its parts are queued at the same moment
		time.Sleep(time.Second)
		synctest.Wait() // afterwards no handler writes to the ledger
		on := map[string]int{}
		for _, x := range s.ledger.execs {
			on[x.host]++
		}
		if on["a"] != 6 || on["b"] != 4 || on["c"] != 2 {
			t.Errorf("began at once: %v", on)
		}
		time.Sleep(2 * time.Minute)
		for _, m := range s.machines {
			m.stop()
		}
		s.c.close()
		s.stopServer(false)
	})
}
