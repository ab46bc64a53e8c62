package sched_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// everything returns all grants that the modules of these tests ask for.
func everything() *apiv1.Grants {
	return &apiv1.Grants{
		Kv:      []*apiv1.BucketGrant{{Name: "state", Write: true}, {Name: "config", Write: true}},
		Secrets: []string{"token", "other"}, Enqueue: []string{"*", "shop/order"},
	}
}

// serve runs f in a world whose module asks for all these grants.
func serve(t *testing.T, f func(t *testing.T, w *world, c *client)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.requests = everything()
		w.start()
		w.addHost("h1", 4)
		c := w.client()
		c.push()
		f(t, w, c)
		c.close()
		w.close()
	})
}

func (c *client) grant(g *apiv1.Grants) {
	c.t.Helper()
	_, err := apiv1.NewModuleAccessClient(c.conn).PutGrants(c.t.Context(), &apiv1.PutGrantsRequest{Grants: &apiv1.ModuleGrants{Module: "m", Grants: g}})
	if err != nil {
		c.t.Fatal(err)
	}
}

// done returns the result of a handler that checks something. A non-nil err fails the
// run.
func done(err error) runtime.Result {
	if err != nil {
		return runtime.Result{Outcome: runtime.Permanent, Error: err.Error()}
	}
	return runtime.Result{Outcome: runtime.Succeeded}
}

// succeeds triggers a job and fails the test unless the run succeeds.
func (c *client) succeeds(name string) *apiv1.Run {
	c.t.Helper()
	r := c.wait(c.trigger(name, ""))
	if r.State != "succeeded" {
		c.t.Fatalf("%s: %s %s: %s", name, r.State, r.Code, r.Error)
	}
	return r
}

func TestValues(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		kv := apiv1.NewValuesClient(c.conn)
		put := func(key, value string, expect *uint64) (*apiv1.Value, error) {
			return kv.PutValue(ctx, &apiv1.PutValueRequest{Bucket: "state", Key: key, Value: value, ExpectVersion: expect})
		}
		must := func(v *apiv1.Value, err error) *apiv1.Value {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		first := must(put("a/b", "one", proto.Uint64(0)))
		if first.Version == 0 || first.Size != 3 {
			t.Fatalf("first: %v", first)
		}
		if _, err := put("a/b", "two", proto.Uint64(0)); status.Code(err) != codes.Aborted {
			t.Errorf("put where there must be none: %v", err)
		}
		second := must(put("a/b", "two", &first.Version))
		if _, err := put("a/b", "three", &first.Version); status.Code(err) != codes.Aborted {
			t.Errorf("put over an old version: %v", err)
		}
		must(put("a/b", "four", nil))
		if _, err := kv.DeleteValue(ctx, &apiv1.DeleteValueRequest{Bucket: "state", Key: "a/b", ExpectVersion: &second.Version}); status.Code(err) != codes.Aborted {
			t.Errorf("delete of an old version: %v", err)
		}
		if _, err := kv.DeleteValue(ctx, &apiv1.DeleteValueRequest{Bucket: "state", Key: "a/b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.GetValue(ctx, &apiv1.GetValueRequest{Bucket: "state", Key: "a/b"}); status.Code(err) != codes.NotFound {
			t.Errorf("get of what was deleted: %v", err)
		}
		// A new entry under a deleted key gets a higher version, also after a restart.
		w.stopServer()
		w.start()
		c.reconnect(w)
		kv = apiv1.NewValuesClient(c.conn)
		again := must(put("a/b", "anew", nil))
		if again.Version <= second.Version {
			t.Errorf("version %d of a new entry, %d was given to the old one", again.Version, second.Version)
		}
		if _, err := kv.PutValue(ctx, &apiv1.PutValueRequest{Bucket: "state", Key: "raw", ValueBytes: []byte{0xff, 0}}); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			must(put(fmt.Sprintf("k%02d", i), "v", nil))
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		kv = apiv1.NewValuesClient(c.conn)
		if got := must(kv.GetValue(ctx, &apiv1.GetValueRequest{Bucket: "state", Key: "raw"})); !bytes.Equal(got.ValueBytes, []byte{0xff, 0}) || got.Value != "" {
			t.Errorf("bytes: %v", got)
		}
		var keys []string
		req := &apiv1.ListValuesRequest{Bucket: "state", Prefix: "k", PageSize: 7}
		for {
			resp, err := kv.ListValues(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range resp.Values {
				if v.Value != "" || v.Size != 1 || v.Version == 0 {
					t.Errorf("listed: %v", v)
				}
				keys = append(keys, v.Key)
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				break
			}
		}
		if len(keys) != 30 || !slices.IsSorted(keys) || keys[29] != "k29" {
			t.Errorf("listed %v", keys)
		}
		buckets, err := kv.ListBuckets(ctx, &apiv1.ListBucketsRequest{})
		if err != nil || len(buckets.Buckets) != 1 || buckets.Buckets[0].Entries != 32 || buckets.Bytes != buckets.Buckets[0].Bytes || buckets.Quota != job.DefaultKVSize {
			t.Errorf("buckets: %v, %v", buckets, err)
		}

		_, err = apiv1.NewAppsClient(c.conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", KvBytes: buckets.Bytes + 100}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put("big", strings.Repeat("x", 200), nil); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--kv-quota") {
			t.Errorf("put over the quota: %v", err)
		}
		must(put("k00", "w", nil)) // does not grow
		for name, req := range map[string]*apiv1.PutValueRequest{
			"no bucket":     {Key: "k"},
			"no key":        {Bucket: "state"},
			"long key":      {Bucket: "state", Key: strings.Repeat("k", job.MaxKey+1)},
			"control":       {Bucket: "state", Key: "a\nb"},
			"slash":         {Bucket: "a/b", Key: "k"},
			"large":         {Bucket: "state", Key: "k", ValueBytes: make([]byte, job.MaxValue+1)},
			"text and data": {Bucket: "state", Key: "k", Value: "a", ValueBytes: []byte("b")},
		} {
			if _, err := kv.PutValue(ctx, req); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestHandlerKeepsValues(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		check := func(ctx context.Context, task *runtime.Task, writes bool) error {
			g := guest(ctx)
			if _, _, err := g.Get(ctx, task, "secret-bucket", "k"); !errors.Is(err, runtime.ErrNotGranted) {
				return fmt.Errorf("a bucket that was not granted: %v", err)
			}
			version, err := g.Put(ctx, task, "state", "n", []byte("1"), 0)
			if !writes {
				if !errors.Is(err, runtime.ErrNotGranted) {
					return fmt.Errorf("put without the right to write: %v", err)
				}
				return nil
			}
			if err != nil || version == 0 {
				return fmt.Errorf("put: %d, %w", version, err)
			}
			value, got, err := g.Get(ctx, task, "state", "n")
			if err != nil || got != version || string(value) != "1" {
				return fmt.Errorf("get: %q %d, %w", value, got, err)
			}
			if _, err := g.Put(ctx, task, "state", "n", []byte("2"), 0); !errors.Is(err, runtime.ErrConflict) {
				return fmt.Errorf("put over a value: %v", err)
			}
			if _, err := g.Put(ctx, task, "state", "n", make([]byte, job.MaxValue+1), runtime.AnyVersion); !errors.Is(err, runtime.ErrTooLarge) {
				return fmt.Errorf("a large value: %v", err)
			}
			if err := g.Delete(ctx, task, "state", "n", version+1000); !errors.Is(err, runtime.ErrConflict) {
				return fmt.Errorf("delete of another version: %v", err)
			}
			if err := g.Delete(ctx, task, "state", "n", runtime.AnyVersion); err != nil {
				return err
			}
			if err := g.Delete(ctx, task, "state", "n", runtime.AnyVersion); !errors.Is(err, runtime.ErrNoEntry) {
				return fmt.Errorf("delete of nothing: %v", err)
			}
			return nil
		}
		writes := false
		w.handlers.byJob["kv"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			if got := task.Grants != nil && len(task.Grants.KV) > 0 && task.Grants.KV[0].Write; got != writes {
				return done(fmt.Errorf("the task's grants: %+v", task.Grants))
			}
			return done(check(ctx, &task, writes))
		}
		c.apply(&apiv1.Job{Name: "kv"})
		c.succeeds("kv") // without grants
		c.grant(&apiv1.Grants{Kv: []*apiv1.BucketGrant{{Name: "state"}, {Name: "secret-bucket"}}})
		c.succeeds("kv") // read is granted, and a bucket that the module did not ask for
		writes = true
		c.grant(&apiv1.Grants{Kv: []*apiv1.BucketGrant{{Name: "state", Write: true}}})
		c.succeeds("kv")
		w.stopServer() // grants survive a restart
		w.start()
		c.reconnect(w)
		c.succeeds("kv")
		c.grant(nil)
		writes = false
		c.succeeds("kv")
	})
}

// TestCheckpoint follows a run over several attempts and restarts of the server.
func TestCheckpoint(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["steps"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			g := guest(ctx)
			data, err := g.Checkpoint(ctx, &task)
			if task.Attempt == 1 {
				if !errors.Is(err, runtime.ErrNoEntry) {
					return done(fmt.Errorf("a checkpoint before there is one: %q, %v", data, err))
				}
			} else if err != nil || string(data) != fmt.Sprint("after ", task.Attempt-1) {
				return done(fmt.Errorf("attempt %d finds %q, %v", task.Attempt, data, err))
			}
			if err := g.SetCheckpoint(ctx, &task, make([]byte, job.MaxValue+1)); !errors.Is(err, runtime.ErrTooLarge) {
				return done(fmt.Errorf("a large checkpoint: %v", err))
			}
			if err := g.SetCheckpoint(ctx, &task, []byte("not the last")); err != nil {
				return done(err)
			}
			if err := g.SetCheckpoint(ctx, &task, fmt.Append(nil, "after ", task.Attempt)); err != nil {
				return done(err)
			}
			if task.Attempt < 4 {
				return runtime.Result{Outcome: runtime.Retryable, Error: "again"}
			}
			return done(nil)
		}
		c.apply(&apiv1.Job{Name: "steps", Retry: &apiv1.Retry{Max: 5, First: "10s", Backoff: "fixed"}})
		id := c.trigger("steps", "")
		for range 2 {
			time.Sleep(5 * time.Second)
			w.stopServer()
			w.start()
			c.reconnect(w)
			time.Sleep(5 * time.Second)
		}
		if r := c.wait(id); r.State != "succeeded" || r.Attempt != 4 {
			t.Fatalf("run: %v", r)
		}
		if n := w.countRows("checkpoint/"); n != 0 {
			t.Errorf("%d checkpoints are left", n)
		}
	})
}

// countRows stops the server and counts the rows of its store with a prefix.
func (w *world) countRows(prefix string) int {
	w.t.Helper()
	w.stopServer()
	n := 0
	st := w.openStore()
	if err := st.Rows(prefix, "", "", func(string, []byte) error { n++; return nil }); err != nil {
		w.t.Error(err)
	}
	if err := st.Close(); err != nil {
		w.t.Error(err)
	}
	w.start()
	return n
}

func TestSecrets(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		ctx, secrets := t.Context(), apiv1.NewSecretsClient(c.conn)
		const value = "correct horse battery staple"
		set, err := secrets.SetSecret(ctx, &apiv1.SetSecretRequest{Name: "token", Value: value})
		if err != nil || set.Version != 1 {
			t.Fatalf("set: %v, %v", set, err)
		}
		if again, err := secrets.SetSecret(ctx, &apiv1.SetSecretRequest{Name: "token", Value: value}); err != nil || again.Version != 2 || !again.CreatedAt.AsTime().Equal(set.CreatedAt.AsTime()) {
			t.Fatalf("set again: %v, %v", again, err)
		}
		list, err := secrets.ListSecrets(ctx, &apiv1.ListSecretsRequest{})
		if err != nil || len(list.Secrets) != 1 || strings.Contains(list.String(), "horse") {
			t.Errorf("list: %v, %v", list, err)
		}
		granted := false
		w.handlers.byJob["login"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			got, err := guest(ctx).Secret(ctx, &task, "token")
			if !granted {
				if !errors.Is(err, runtime.ErrNotGranted) {
					return done(fmt.Errorf("a secret that was not granted: %v", err))
				}
				return done(nil)
			}
			if err != nil || string(got) != value {
				return done(fmt.Errorf("secret: %q, %w", got, err))
			}
			if _, err := guest(ctx).Secret(ctx, &task, "other"); !errors.Is(err, runtime.ErrNotGranted) {
				return done(fmt.Errorf("the other secret: %v", err))
			}
			s.Log(runtime.LevelInfo, []byte("logging in with "+value+"!"))
			return runtime.Result{Outcome: runtime.Permanent, Error: "refused: " + value, Code: "ok"}
		}
		c.apply(&apiv1.Job{Name: "login"})
		c.succeeds("login")
		granted = true
		c.grant(&apiv1.Grants{Secrets: []string{"token"}})
		r := c.wait(c.trigger("login", ""))
		if r.Code != "ok" || r.Error != "refused: [secret]" {
			t.Errorf("run: %v", r)
		}
		log, err := c.runs.ReadLog(ctx, &apiv1.ReadLogRequest{Id: r.Id})
		if err != nil {
			t.Fatal(err)
		}
		if line, err := log.Recv(); err != nil || line.Text != "logging in with [secret]!" {
			t.Errorf("log: %v, %v", line, err)
		}
		for name, req := range map[string]*apiv1.SetSecretRequest{
			"no name": {Value: "v"}, "empty": {Name: "n"}, "large": {Name: "n", ValueBytes: make([]byte, job.MaxValue+1)}, "bad name": {Name: "a/b", Value: "v"},
		} {
			if _, err := secrets.SetSecret(ctx, req); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
		// No file on the disk contains the secret, nor does the log of the run.
		time.Sleep(time.Minute)
		w.stopServer()
		err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if bytes.Contains(b, []byte("horse battery")) {
				t.Errorf("%s holds the secret", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		// A server with another key cannot open the secret.
		w.secretKey = bytes.Repeat([]byte{7}, 32)
		w.start()
		c.reconnect(w)
		r = c.wait(c.trigger("login", ""))
		if r.State != "failed" || !strings.Contains(r.Error, "key file does not have") {
			t.Errorf("with another key: %v", r)
		}
		secrets = apiv1.NewSecretsClient(c.conn)
		if _, err := secrets.DeleteSecret(ctx, &apiv1.DeleteSecretRequest{Name: "token"}); err != nil {
			t.Error(err)
		}
		if _, err := secrets.DeleteSecret(ctx, &apiv1.DeleteSecretRequest{Name: "token"}); status.Code(err) != codes.NotFound {
			t.Errorf("delete of nothing: %v", err)
		}
		w.secretKey = nil
		w.stopServer()
		w.start()
		c.reconnect(w)
		if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(ctx, &apiv1.SetSecretRequest{Name: "token", Value: "v"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("set without a key: %v", err)
		}
	})
}

// TestGuestIsFenced makes guest calls in which one field of the caller is wrong at a
// time.
func TestGuestIsFenced(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		c.grant(everything())
		seen := make(chan runtime.Task, 1)
		w.handlers.byJob["long"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			seen <- task
			return sleeping(time.Hour)(ctx, task, nil)
		}
		c.apply(&apiv1.Job{Name: "long"})
		id := c.trigger("long", "")
		<-seen
		run, err := job.ParseRunID(id)
		if err != nil {
			t.Fatal(err)
		}
		right, ok := w.hosts["h1"].host.Caller("default", run, 1)
		if !ok {
			t.Fatal("the host does not know its attempt")
		}
		if _, ok := w.hosts["h1"].host.Caller("default", run, 2); ok {
			t.Error("the host speaks for an attempt that it does not run")
		}
		g := apiv1.NewGuestClient(c.conn)
		ctx := t.Context()
		calls := map[string]func(*apiv1.Caller) error{
			"get checkpoint": func(who *apiv1.Caller) error {
				_, err := g.GetCheckpoint(ctx, &apiv1.GuestGetCheckpointRequest{Caller: who})
				return err
			},
			"set checkpoint": func(who *apiv1.Caller) error {
				_, err := g.SetCheckpoint(ctx, &apiv1.GuestSetCheckpointRequest{Caller: who, Data: []byte("x")})
				return err
			},
			"get": func(who *apiv1.Caller) error {
				_, err := g.GetEntry(ctx, &apiv1.GuestGetEntryRequest{Caller: who, Bucket: "state", Key: "k"})
				return err
			},
			"put": func(who *apiv1.Caller) error {
				_, err := g.PutEntry(ctx, &apiv1.GuestPutEntryRequest{Caller: who, Bucket: "state", Key: "k"})
				return err
			},
			"delete": func(who *apiv1.Caller) error {
				_, err := g.DeleteEntry(ctx, &apiv1.GuestDeleteEntryRequest{Caller: who, Bucket: "state", Key: "k"})
				return err
			},
			"enqueue": func(who *apiv1.Caller) error {
				_, err := g.Enqueue(ctx, &apiv1.GuestEnqueueRequest{Caller: who, Job: "long", DelayMs: 1000 * 3600})
				return err
			},
			"enqueue by key": func(who *apiv1.Caller) error {
				_, err := g.Enqueue(ctx, &apiv1.GuestEnqueueRequest{Caller: who, Job: "long", Key: "k", DelayMs: 1000 * 3600})
				return err
			},
			"map": func(who *apiv1.Caller) error {
				_, err := g.Map(ctx, &apiv1.GuestMapRequest{Caller: who, Inputs: [][]byte{nil}})
				return err
			},
			"secret": func(who *apiv1.Caller) error {
				_, err := g.GetSecret(ctx, &apiv1.GuestGetSecretRequest{Caller: who, Name: "token"})
				return err
			},
		}
		fenced := func(what string, who *apiv1.Caller, want ...codes.Code) {
			t.Helper()
			for name, call := range calls {
				if err := call(who); !slices.Contains(want, status.Code(err)) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
		}
		forge := func(f func(*apiv1.Caller)) *apiv1.Caller {
			who := proto.CloneOf(right)
			f(who)
			return who
		}
		fenced("as it is", right, codes.OK, codes.NotFound, codes.Unimplemented)
		stale := codes.FailedPrecondition
		fenced("of another host", forge(func(who *apiv1.Caller) { who.Host = "h2" }), stale)
		fenced("of another session", forge(func(who *apiv1.Caller) { who.Session = "x" }), stale)
		fenced("of no session", forge(func(who *apiv1.Caller) { who.Session = "" }), stale)
		fenced("of an earlier attempt", forge(func(who *apiv1.Caller) { who.Attempt = 0 }), stale)
		fenced("of a later attempt", forge(func(who *apiv1.Caller) { who.Attempt = 2 }), stale)
		fenced("of another epoch", forge(func(who *apiv1.Caller) { who.Epoch++ }), stale)
		fenced("of another app", forge(func(who *apiv1.Caller) { who.App = "shop" }), stale)
		fenced("of another run", forge(func(who *apiv1.Caller) { who.Run[15]++ }), stale)
		fenced("of no run", forge(func(who *apiv1.Caller) { who.Run = nil }), codes.InvalidArgument)
		fenced("nobody", nil, codes.InvalidArgument)
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		c.wait(id)
		fenced("of a run that has ended", right, stale)
	})
}

func TestEnqueue(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		c.grant(&apiv1.Grants{Enqueue: []string{"child", "late", "shop/order"}})
		var mu sync.Mutex
		made := map[string][]string{}
		w.handlers.byJob["parent"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			g := guest(ctx)
			for i, s := range []runtime.Submit{
				{Job: "child", Input: []byte("one")},
				{Job: "child"},
				{Job: "late", DelayMs: 60_000},
				{Job: "child", Key: "by " + task.RunID, Input: []byte("keyed")},
				{App: "shop", Job: "order"},
			} {
				s.Sequence = i
				id, err := g.Enqueue(ctx, &task, s)
				if err != nil {
					return done(fmt.Errorf("%+v: %w", s, err))
				}
				mu.Lock()
				made[fmt.Sprint(i)] = append(made[fmt.Sprint(i)], id)
				mu.Unlock()
			}
			if _, err := g.Enqueue(ctx, &task, runtime.Submit{Job: "parent", Sequence: 9}); !errors.Is(err, runtime.ErrNotGranted) {
				return done(fmt.Errorf("a job that was not granted: %v", err))
			}
			if _, err := g.Enqueue(ctx, &task, runtime.Submit{App: "bank", Job: "order", Sequence: 9}); !errors.Is(err, runtime.ErrNotGranted) {
				return done(fmt.Errorf("an app that was not granted: %v", err))
			}
			if task.Attempt < 3 {
				return runtime.Result{Outcome: runtime.Retryable}
			}
			return done(nil)
		}
		c.apply(&apiv1.Job{Name: "child", Input: "the job's own", Deadline: "1s"})
		c.apply(&apiv1.Job{Name: "late", Deadline: "1s", Schedule: &apiv1.Schedule{Every: "1h"}})
		// The retry delay is long enough for the enqueued runs to be in the history by
		// then.
		c.apply(&apiv1.Job{Name: "parent", Retry: &apiv1.Retry{Max: 3, First: "5m", Limit: "10m", Backoff: "fixed"}})
		c.pushTo("shop")
		shop := &apiv1.Job{App: "shop", Name: "order"}
		c.apply(shop)
		denied := c.wait(c.trigger("parent", ""))
		if denied.State != "failed" || !strings.Contains(denied.Error, "enqueue-from") {
			t.Fatalf("without the other app's consent: %v", denied)
		}
		if _, err := apiv1.NewAppsClient(c.conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "shop", EnqueueFrom: []string{"default"}}}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		clear(made)
		mu.Unlock()
		begun := time.Now()
		r := c.wait(c.trigger("parent", ""))
		if r.State != "succeeded" || r.Attempt != 3 {
			t.Fatalf("parent: %v", r)
		}
		for i, ids := range made {
			if len(ids) != 3 || ids[0] != ids[1] || ids[1] != ids[2] {
				t.Errorf("submit %s gave the runs %v", i, ids)
			}
		}
		for i, want := range map[string]string{"0": "one", "1": "the job's own", "3": "keyed"} {
			if child := c.run(made[i][0]); child.State != "succeeded" || child.Output != want || child.Trigger != "handler" || child.Cause != r.Id {
				t.Errorf("submit %s: %v", i, child)
			}
		}
		late := c.run(made["2"][0])
		if late.State != "succeeded" || late.StartedAt.AsTime().Sub(begun).Round(time.Second) != time.Minute {
			t.Errorf("late: %v, started after %s", late, late.StartedAt.AsTime().Sub(begun))
		}
		shopRuns, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: "shop"})
		if err != nil || len(shopRuns.Runs) != 1 || shopRuns.Runs[0].State != "succeeded" {
			t.Errorf("the other app: %v, %v", shopRuns, err)
		}
		// A run that is enqueued for later survives a restart and a change of the
		// schedule, and can be cancelled.
		w.handlers.byJob["later"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			id, err := guest(ctx).Enqueue(ctx, &task, runtime.Submit{Job: "late", DelayMs: 600_000})
			if err != nil {
				return done(err)
			}
			other, err := guest(ctx).Enqueue(ctx, &task, runtime.Submit{Job: "late", DelayMs: 600_000, Sequence: 1})
			return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(id + " " + other), Error: fmt.Sprint(err)}
		}
		c.apply(&apiv1.Job{Name: "later"})
		id, cancelled, _ := strings.Cut(c.succeeds("later").Output, " ")
		if got := c.run(id); got.State != "armed" {
			t.Errorf("ahead of its time: %v", got)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		c.apply(&apiv1.Job{Name: "late", Schedule: &apiv1.Schedule{Every: "2h"}})
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: cancelled}); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		if got := c.wait(id); got.State != "succeeded" || time.Since(at) < 9*time.Minute {
			t.Errorf("after a restart: %v", got)
		}
		if got := c.run(cancelled); got.State != "cancelled" {
			t.Errorf("cancelled: %v", got)
		}
	})
}
