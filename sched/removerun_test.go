package sched_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// remove deletes a run, or its payload, and returns the number of runs.
func (c *client) remove(id string, payloadOnly bool) int64 {
	c.t.Helper()
	resp, err := c.runs.DeleteRun(context.Background(), &apiv1.DeleteRunRequest{Id: id, PayloadOnly: payloadOnly})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Runs
}

// refusesRemoval checks that a run cannot be deleted.
func (c *client) refusesRemoval(id string, code codes.Code, text string) {
	c.t.Helper()
	for _, payloadOnly := range []bool{false, true} {
		_, err := c.runs.DeleteRun(context.Background(), &apiv1.DeleteRunRequest{Id: id, PayloadOnly: payloadOnly})
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			c.t.Fatalf("run %s: %v, want %v with %q", id, err, code, text)
		}
	}
}

// lines returns the log of a run.
func (c *client) lines(id string) (n int) {
	c.t.Helper()
	log, err := c.runs.ReadLog(context.Background(), &apiv1.ReadLogRequest{Id: id})
	for err == nil {
		if _, err = log.Recv(); err == nil {
			n++
		}
	}
	if err != io.EOF {
		c.t.Fatal(err)
	}
	return n
}

var logs handler = func(_ context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	s.Log(runtime.LevelInfo, append([]byte("line of "), t.Input...))
	return runtime.Result{Outcome: runtime.Succeeded, Output: append([]byte("answer of "), t.Input...)}
}

// TestDeleteRun deletes runs and payloads. Restarts, a standby that takes over, and a replay of the whole
// journal show the same.
func TestDeleteRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.snapshotEvery = 1000 * time.Hour // the journal stays
		w.handlers.byJob["j"] = logs
		w.handlers.byJob["slow"] = sleeping(time.Hour)
		c.apply(&apiv1.Job{Name: "j"})
		c.apply(&apiv1.Job{Name: "slow", Timeout: "2h"})
		live := c.trigger("slow", "")
		c.refusesRemoval(live, codes.FailedPrecondition, "cancel it first")
		c.refusesRemoval(strings.Repeat("0", 26), codes.NotFound, "")
		c.refusesRemoval("x", codes.InvalidArgument, "")
		var ids [3]string
		for i := range ids {
			resp, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "j", Input: proto.String(fmt.Sprint("input-", i))})
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = c.wait(resp.Id).Id
		}
		kept, purged, deleted := ids[0], ids[1], ids[2]
		before := c.run(purged)
		if before.Output != "answer of input-1" || c.lines(purged) != 1 {
			t.Fatal(before)
		}
		if n := c.remove(purged, true); n != 1 {
			t.Errorf("%d payloads were deleted", n)
		}
		at := time.Now()
		if n := c.remove(deleted, false); n != 1 {
			t.Errorf("%d runs were deleted", n)
		}
		time.Sleep(time.Minute)
		if n := c.remove(purged, true); n != 0 {
			t.Errorf("a second purge deleted %d payloads", n)
		}
		check := func(where string) {
			t.Helper()
			r := c.run(purged)
			if r.Input != "" || r.Output != "" || r.State != "succeeded" || r.Job != "j" || !r.FinishedAt.AsTime().Equal(before.FinishedAt.AsTime()) || len(r.Attempts) != len(before.Attempts) {
				t.Errorf("%s: the purged run: %v", where, r)
			}
			if d := at.Sub(r.PayloadDeletedAt.AsTime()); d < 0 || d > time.Second {
				t.Errorf("%s: its payload was deleted at %v, want %v", where, r.PayloadDeletedAt.AsTime(), at)
			}
			if n := c.lines(purged); n != 0 {
				t.Errorf("%s: the purged run has %d lines", where, n)
			}
			if _, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: purged}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "payload") {
				t.Errorf("%s: retry: %v", where, err)
			}
			if _, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: deleted}); status.Code(err) != codes.NotFound {
				t.Errorf("%s: the deleted run: %v", where, err)
			}
			c.refusesRemoval(deleted, codes.NotFound, "")
			if all := c.all("j", ""); len(all) != 2 || all[0].Id != purged || all[1].Id != kept || all[0].PayloadDeletedAt == nil {
				t.Errorf("%s: the list has %v", where, all)
			}
			if r := c.run(kept); r.Input != "input-0" || r.Output != "answer of input-0" || r.PayloadDeletedAt != nil {
				t.Errorf("%s: the other run: %v", where, r)
			}
			if j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j"}); err != nil || j.Stats.Succeeded != 3 {
				t.Errorf("%s: the job counts %v, %v", where, j.GetStats(), err)
			}
		}
		check("at once")
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: live}); err != nil {
			t.Fatal(err)
		}
		for _, where := range []string{"restart", "standby", "replay", "replay by a standby"} {
			w.stopServer()
			if w.standsBy = strings.Contains(where, "standby"); strings.Contains(where, "replay") {
				if err := os.RemoveAll(filepath.Join(w.dir, "store")); err != nil {
					t.Fatal(err)
				}
			}
			w.start()
			c.reconnect(w)
			check(where)
		}
	})
}

// TestDeletedBytes checks that the payload of a deleted run leaves the history, and that the journal is
// trimmed, while a server works.
func TestDeletedBytes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["j"] = logs
		c.apply(&apiv1.Job{Name: "j"})
		var ids [2]string
		for i, input := range []string{"secret-of-ann", "secret-of-bob"} {
			resp, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "j", Input: &input})
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = c.wait(resp.Id).Id
		}
		time.Sleep(10 * time.Second) // the statistics have counted them
		c.remove(ids[0], true)
		c.wait(c.trigger("j", ""))
		time.Sleep(5 * time.Minute)
		for text, want := range map[string]bool{"answer of secret-of-ann": false, "line of secret-of-ann": false, "answer of secret-of-bob": true, "line of secret-of-bob": true} {
			found := false
			for _, part := range []string{"history", "logs"} {
				err := filepath.WalkDir(filepath.Join(w.dir, "store", part), func(name string, d fs.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					content, err := os.ReadFile(name)
					found = found || bytes.Contains(content, []byte(text))
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if found != want {
				t.Errorf("%q is in the history: %v, want %v", text, found, want)
			}
		}
		if r := c.run(ids[0]); r.PayloadDeletedAt == nil || r.Output != "" || r.State != "succeeded" {
			t.Error(r)
		}
	})
}

// TestDeletedIDs checks that a planned time whose run was deleted gets no second run, before and after its
// bytes are erased.
func TestDeletedIDs(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.apply(&apiv1.Job{Name: "hourly", Schedule: &apiv1.Schedule{Cron: "0 * * * *"}})
		time.Sleep(150 * time.Minute)
		runs := c.all("hourly", "")
		if len(runs) != 2 {
			t.Fatal(runs)
		}
		backfill := func() *apiv1.BackfillJobResponse {
			t.Helper()
			resp, err := c.jobs.BackfillJob(t.Context(), &apiv1.BackfillJobRequest{Name: "hourly", From: timestamppb.New(time.Now().Add(-130 * time.Minute)), Until: timestamppb.New(time.Now())})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		c.remove(runs[0].Id, false)
		if resp := backfill(); resp.Existing != 2 || resp.Accepted != 0 {
			t.Errorf("at once: %v", resp)
		}
		c.apply(&apiv1.Job{Name: "j"})
		c.wait(c.trigger("j", ""))
		time.Sleep(5 * time.Minute)
		if resp := backfill(); resp.Existing != 2 || resp.Accepted != 0 {
			t.Errorf("afterwards: %v", resp)
		}
	})
}

// TestDeleteParents checks that parts and the runs of nodes go with their parent, and not alone.
func TestDeleteParents(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["shards"] = logs
		w.handlers.byJob["a"] = says("of a")
		w.handlers.byJob["b"] = refuses
		c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 2500}})
		c.flow(&apiv1.Job{Name: "flow"}, node("a"), &apiv1.Node{Name: "b", After: []string{"a"}, Input: "${nodes.a.output}"})
		parent := c.wait(c.trigger("shards", "")).Id
		flow := c.wait(c.trigger("flow", ""))
		parts := c.all("shards", "")
		if len(parts) != 2501 {
			t.Fatalf("%d runs", len(parts))
		}
		var part string
		for _, r := range parts {
			if r.Parent != "" {
				part = r.Id
			}
		}
		c.refusesRemoval(part, codes.FailedPrecondition, "delete that one")
		c.refusesRemoval(flow.Nodes[0].Run, codes.FailedPrecondition, "delete that one")
		if n := c.remove(parent, true); n != 2501 {
			t.Errorf("%d payloads were deleted", n)
		}
		if r := c.run(part); r.PayloadDeletedAt == nil || r.Output != "" || c.lines(part) != 0 {
			t.Errorf("the part: %v", r)
		}
		if n := c.remove(parent, false); n != 2501 {
			t.Errorf("%d runs were deleted", n)
		}
		if all := c.all("shards", ""); len(all) != 0 {
			t.Errorf("%d runs stay", len(all))
		}
		again := c.wait(c.retry(flow.Id).Id) // takes over the first node
		if !again.Nodes[0].Kept {
			t.Fatal(again)
		}
		if n := c.remove(again.Id, false); n != 2 {
			t.Errorf("%d runs were deleted with the retry", n)
		}
		if r := c.run(flow.Nodes[0].Run); r.Output != "of a" {
			t.Errorf("the node that the retry took over: %v", r)
		}
		if n := c.remove(flow.Id, false); n != 3 {
			t.Errorf("%d runs were deleted with the workflow", n)
		}
		if all := append(c.all("a", ""), c.all("b", "")...); len(all) != 0 {
			t.Errorf("%d runs of nodes stay", len(all))
		}
	})
}
