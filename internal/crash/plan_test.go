package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestKilledPlan changes many jobs with the states that it has read, as a plan does, and kills the server
// at any moment. Afterwards all jobs are changed or none, and a set with states that have moved changes
// nothing.
func TestKilledPlan(t *testing.T) {
	const jobs = 1000
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	p := buildProgram(t, testkit.FreeAddress(t))
	s := p.start(t)
	says := s.await(t, p)
	prepare(t, says.URL, says.Token)
	c := dial(t, says.URL, sdk.Options{Token: says.Token, RetryFor: time.Minute})
	set := func(text string, bases map[string]string) (set sdk.ChangeSet) {
		for i := range jobs {
			name := fmt.Sprintf("planned-%04d", i)
			set.Definitions = append(set.Definitions, proto.Message(&sdk.Job{Name: name, Description: text, Handler: &sdk.Handler{Module: "work@1"}}))
			base := sdk.NoBase
			if bases[name] != "" {
				base = bases[name]
			}
			set.Bases = append(set.Bases, base)
		}
		return set
	}
	// read returns the descriptions and the states, after the set that may be in progress.
	read := func() (texts, bases map[string]string) {
		t.Helper()
		if _, err := c.Apply(t.Context(), &sdk.Job{Name: "last", Handler: &sdk.Handler{Module: "work@1"}}); err != nil {
			t.Fatal(err)
		}
		texts, bases = map[string]string{}, map[string]string{}
		for job, err := range c.Jobs(t.Context(), sdk.JobQuery{Prefix: "planned-"}) {
			if err != nil {
				t.Fatal(err)
			}
			texts[job.GetDescription()], bases[job.GetName()] = "", sdk.BaseOf(job)
		}
		return texts, bases
	}
	old, applied, bases := "", 0, map[string]string{}
	rounds := roundsOf(t)
	for round := range rounds {
		next := fmt.Sprint("round ", round)
		done := make(chan error, 1)
		go func() {
			_, err := c.ApplyChangeSet(context.WithoutCancel(t.Context()), set(next, bases))
			done <- err
		}()
		killAfter(t, s, upTo(rnd, 100*time.Millisecond))
		s = p.start(t)
		s.await(t, p)
		err := <-done
		texts, now := read()
		_, changed := texts[next]
		if _, same := texts[old]; len(texts) > 1 || !changed && !same && len(texts) > 0 || changed && len(now) != jobs {
			t.Fatalf("round %d: %d jobs have the descriptions %v", round, len(now), texts)
		}
		if err == nil && !changed {
			t.Fatalf("round %d: a set that was acknowledged is not applied", round)
		}
		if changed {
			if _, err := c.ApplyChangeSet(t.Context(), set("stale", bases)); !errors.Is(err, sdk.ErrChanged) {
				t.Fatalf("round %d: a set with states that have moved: %v", round, err)
			}
			old, applied = next, applied+1
		}
		bases = now
	}
	s.stop(t)
	t.Logf("%d of %d sets were applied", applied, rounds)
}
