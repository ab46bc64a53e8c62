package sched_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// Unload makes compiler an engine that can unload modules.
func (e *compiler) Unload(_ context.Context, digest string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.have, digest)
	return nil
}

func (e *compiler) Holds() (versions []string) {
	for _, v := range []string{"1", "2", "3"} {
		if e.Loaded(modules.Digest(codeOf(v))) {
			versions = append(versions, v)
		}
	}
	return versions
}

// TestCollectedModulesLeaveHosts checks that every host unloads exactly the collected
// modules, also a host that connects later and still has one.
func TestCollectedModulesLeaveHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		a, b := w.addCompiling("a", nil), w.addCompiling("b", nil)
		synctest.Wait()
		c.pushVersions("1", "2", "3")
		if err := c.applyTo("n@2", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := a.Holds(); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Fatalf("host a has loaded %v", got)
		}
		time.Sleep(2 * time.Hour)
		collect := func(dry bool) {
			t.Helper()
			if _, err := c.modules.CollectModules(t.Context(), &apiv1.CollectModulesRequest{OlderThan: "1h", DryRun: dry}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		collect(true)
		if got := a.Holds(); len(got) != 3 {
			t.Errorf("after a dry run host a has %v", got)
		}
		collect(false)
		for name, e := range map[string]*compiler{"a": a, "b": b} {
			if got := e.Holds(); !slices.Equal(got, []string{"2"}) {
				t.Errorf("host %s keeps %v, want 2, which a job names", name, got)
			}
		}
		c.pushVersions("1") // a push of the same bytes brings the module back
		synctest.Wait()
		if got := a.Holds(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("host a has %v after version 1 was pushed again", got)
		}

		// A host that was disconnected while version 3 was collected still reports it.
		s, err := apiv1.NewWorkerClient(c.conn).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var states []*apiv1.ModuleState
		for _, v := range []string{"1", "2", "3", "of another server"} {
			states = append(states, &apiv1.ModuleState{Digest: modules.Digest(codeOf(v)), State: "ready"})
		}
		for _, up := range []*apiv1.WorkUp{{Hello: &apiv1.Hello{Host: "c", Session: "s"}}, {Modules: states}} {
			if err := s.Send(up); err != nil {
				t.Fatal(err)
			}
		}
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Unload) == 0 {
				continue
			}
			if !slices.Equal(m.Unload, []string{modules.Digest(codeOf("3"))}) {
				t.Errorf("the host is to forget %v, want version 3 alone", m.Unload)
			}
			break
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}
