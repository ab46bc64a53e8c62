package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// move moves slots from one partition to another.
func (p *two) move(from, to *world, unit string, slots ...uint8) {
	p.t.Helper()
	for _, slot := range slots {
		move, err := from.srv.Leave(p.t.Context(), "default", slot, unit, time.Second)
		if err == nil {
			err = to.srv.Take(p.t.Context(), "default", slot, move, exported(p.t, from.srv, slot, move))
		}
		if err == nil {
			err = from.srv.Forget(p.t.Context(), "default", slot, move)
		}
		if err != nil {
			p.t.Fatalf("move slot %d: %v", slot, err)
		}
	}
}

// descriptions counts the jobs of both partitions by their description.
func (p *two) descriptions() map[string]int {
	p.t.Helper()
	count := map[string]int{}
	for _, w := range []*world{p.u, p.v} {
		c := w.client()
		defer c.close()
		for token := ""; ; {
			list, err := c.jobs.ListJobs(p.t.Context(), &apiv1.ListJobsRequest{PageSize: 1000, PageToken: token})
			if err != nil {
				p.t.Fatal(err)
			}
			for _, j := range list.Jobs {
				count[j.Description]++
			}
			if token = list.NextPageToken; token == "" {
				break
			}
		}
	}
	return count
}

// wide returns a set with jobs in all slots, which name an alias and a calendar of the set.
func wide(n int, text string) []*apiv1.Change {
	changes := large(n, text)
	for _, c := range changes {
		if j := c.GetJob(); j != nil {
			j.Dependency = nil // jobs that refer to each other are in one partition
		}
	}
	return changes
}

// TestChangeSetOfSplitApp checks that a set is applied as a whole to an app whose slots are in
// two partitions: whichever append the process of either partition is killed at.
func TestChangeSetOfSplitApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTwo(t)
		c := p.u.client()
		defer func() { c.close(); p.u.close(); p.v.close() }()
		c.pushVersions("1")
		if err := c.applyTo("n@1", &apiv1.Job{Name: nameIn(movedSlot, "old"), Description: "one"}); err != nil {
			t.Fatal(err)
		}
		p.copyApp()
		time.Sleep(4 * time.Second) // until hosts have had the time to report
		p.move(p.u, p.v, "v", 3, 4, movedSlot, 6, 7, 8)

		const jobs = 700
		set := func(text string) []*apiv1.Change {
			old := on("n@1", nameIn(movedSlot, "old"))
			old.Description = text
			return append(wide(jobs-1, text), put(old))
		}
		got, err := c.applySet(set("one")...)
		if err != nil || strings.Count(got, "created") != jobs+1 || strings.Count(got, "unchanged") != 1 {
			t.Fatalf("%d created, %d unchanged, %v", strings.Count(got, "created"), strings.Count(got, "unchanged"), err)
		}
		if got, err := c.applySet(set("one")...); err != nil || strings.Count(got, "unchanged") != jobs+2 {
			t.Errorf("again: %d unchanged, %v", strings.Count(got, "unchanged"), err)
		}
		if n := p.descriptions(); n["one"] != jobs || len(n) != 1 {
			t.Fatalf("the jobs have the descriptions %v", n)
		}

		// What one partition refuses changes nothing in the other.
		there, here := nameIn(movedSlot, "there"), nameIn(movedSlot+8, "here")
		depends := on("n@1", there)
		depends.Dependency = &apiv1.Dependency{Jobs: []string{here}}
		for what, changes := range map[string][]*apiv1.Change{
			"a module that is missing": {put(on("n@1", here)), put(on("n@7", there))},
			"another partition":        {put(on("n@1", here)), put(depends)},
			"an alias that is named":   {put(on("n@1", here)), remove("alias", "n@prod")},
		} {
			_, err := c.applySet(changes...)
			if problems := problemsOf(err).GetProblems(); status.Code(err) != codes.FailedPrecondition || len(problems) != 1 || problems[0].Index != 1 {
				t.Errorf("%s: %v, %v", what, err, problems)
			}
		}
		moved := put(on("n@1", nameIn(movedSlot, "old")))
		moved.Base = "0000000000000000"
		if _, err := c.applySet(put(on("n@1", here)), moved); status.Code(err) != codes.Aborted || len(problemsOf(err).GetProblems()) != 1 {
			t.Errorf("a base that moved in the other partition: %v", err)
		}
		if n := p.descriptions(); n["one"] != jobs || len(n) != 1 {
			t.Fatalf("after refused sets the jobs have the descriptions %v", n)
		}

		before, rounds := "one", [2]int{}
		for victim, w := range []*world{p.u, p.v} {
			for n := 1; ; n++ {
				next := fmt.Sprint("victim ", victim, ", append ", n)
				p.dies[victim].left.Store(int64(n))
				done := make(chan error, 1)
				go func() {
					_, err := c.applySet(set(next)...)
					done <- err
				}()
				killed := func() bool { return p.dies[victim].left.Load() < 0 }
				for len(done) == 0 && !killed() {
					time.Sleep(time.Millisecond)
				}
				if !killed() {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
					p.dies[victim].left.Store(0)
					before = next
					break
				}
				synctest.Wait()
				w.stopServer()
				w.start()
				err := <-done
				if victim == 0 {
					c.reconnectTo(p.u)
				}
				time.Sleep(5 * time.Second)
				now := p.descriptions()
				switch {
				case now[next] == jobs && len(now) == 1:
					before = next
				case err == nil || now[before] != jobs || len(now) != 1:
					t.Fatalf("%s: %v; the jobs had the description %q, and have %v", next, err, before, now)
				}
				rounds[victim]++
			}
		}
		if rounds[0] < 10 || rounds[1] < 5 {
			t.Errorf("the processes were killed %v times", rounds)
		}

		// A slot comes back, and sets go on from there.
		time.Sleep(4 * time.Second)
		p.move(p.v, p.u, "u", movedSlot)
		if _, err := c.applySet(append(set("last"), remove("job", nameIn(movedSlot, "old")), remove("job", "j00001"))...); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a job that is put and deleted: %v", err)
		}
		if got, err := c.applySet(remove("job", nameIn(movedSlot, "old")), remove("job", "j00001"), put(&apiv1.Calendar{Name: "days", Days: []string{"sun"}})); err != nil || got != "deleted deleted updated" {
			t.Errorf("%s, %v", got, err)
		}
		if n := p.descriptions(); n[before] != jobs-2 {
			t.Errorf("the jobs have the descriptions %v", n)
		}
		if slot := job.SlotOf("j00001"); slot == movedSlot {
			t.Errorf("both deletions are in slot %d", slot)
		}
	})
}
