package sched_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched"
)

// audited is a world whose calls have a principal and an attribution, with its clients.
type audited struct {
	*world
	t     *testing.T
	d     *disk
	c     *client
	admin context.Context
}

func newAudited(t *testing.T, standsBy bool) *audited {
	a := &audited{world: newWorld(t), t: t}
	a.guard, a.standsBy, a.checkpointEvery = guardOfTest, standsBy, 50*time.Millisecond
	a.wrap = func(inner journal.Journal) journal.Journal {
		a.d = &disk{Journal: inner, note: a.note()}
		return a.d
	}
	a.start()
	a.c, a.admin = a.client(), withToken(t, adminOfTest)
	return a
}

func (a *audited) end() {
	a.c.close()
	a.close()
}

// restart ends the server as a power cut does, and starts it again.
func (a *audited) restart() {
	synctest.Wait()
	a.stopServer()
	a.start()
	a.c.reconnect(a.world)
}

// events returns all events, the oldest first.
func (a *audited) events(q *apiv1.ListAuditEventsRequest) (all []*apiv1.AuditEvent) {
	a.t.Helper()
	q.PageSize = 7 // many pages
	for {
		page, err := apiv1.NewAuditClient(a.c.conn).ListAuditEvents(a.admin, q)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, e := range page.Events {
			all = append([]*apiv1.AuditEvent{e}, all...)
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return all
		}
	}
}

func (a *audited) verify() *apiv1.AuditChain {
	a.t.Helper()
	r, err := apiv1.NewAuditClient(a.c.conn).VerifyAudit(a.admin, &apiv1.VerifyAuditRequest{})
	if err != nil || len(r.Chains) != 1 {
		a.t.Fatal(r, err)
	}
	return r.Chains[0]
}

// TestAuditPower makes mixed changes while the power fails again and again. Each change that is in
// the state has exactly one event, an event has its change, and the chain is whole.
func TestAuditPower(t *testing.T) {
	for _, standsBy := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby %t", standsBy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAudited(t, standsBy)
				defer a.end()
				r := rand.New(rand.NewPCG(7, 8))
				secrets, acknowledged := map[string]int{}, 0
				for n := range 1500 {
					cuts := r.IntN(25) == 0
					if cuts {
						a.d.cutPower(1+r.IntN(2), r.IntN(2) == 0)
					}
					name := fmt.Sprint("x", r.IntN(6))
					var err error
					switch r.IntN(5) {
					case 0, 1, 2:
						j := on("m@1", name)
						j.Handler = &apiv1.Handler{Name: "native:none"}
						j.Description = fmt.Sprint(n)
						_, err = a.c.jobs.ApplyJob(a.admin, &apiv1.ApplyJobRequest{Job: j})
					case 3:
						_, err = a.c.jobs.DeleteJob(a.admin, &apiv1.DeleteJobRequest{Name: name})
						if status.Code(err) == codes.NotFound {
							err = nil
						}
					default:
						var s *apiv1.Secret
						if s, err = apiv1.NewSecretsClient(a.c.conn).SetSecret(a.admin, &apiv1.SetSecretRequest{Name: name, ValueBytes: []byte("v")}); err == nil {
							secrets[name] = int(s.Version)
						}
					}
					switch {
					case a.d.isDead():
						a.restart()
					case err != nil:
						t.Fatal(n, err)
					default:
						a.d.spare()
					}
					if err == nil {
						acknowledged++
					}
				}
				type object struct {
					revision int
					exists   bool
				}
				jobs, versions := map[string]*object{}, map[string]int{}
				for _, e := range a.events(&apiv1.ListAuditEventsRequest{}) {
					if e.Actor != "admin" || e.Outcome != "ok" || e.App != "default" || e.Count != 1 {
						t.Fatalf("%v", e)
					}
					o := jobs[e.Object]
					if o == nil {
						o = &object{}
						jobs[e.Object] = o
					}
					fits := false
					switch e.Code {
					case "job.created":
						fits = !o.exists && e.Before == "" && e.After == "revision 1"
						o.exists, o.revision = true, 1
					case "job.changed":
						fits = o.exists && e.Before == fmt.Sprint("revision ", o.revision) && e.After == fmt.Sprint("revision ", o.revision+1)
						o.revision++
					case "job.deleted":
						fits = o.exists && e.Before == fmt.Sprint("revision ", o.revision) && e.After == ""
						o.exists = false
					case "secret.set":
						versions[e.Object]++
						fits = e.After == fmt.Sprint("version ", versions[e.Object])
					}
					if !fits {
						t.Fatalf("after %+v comes %v", o, e)
					}
				}
				for name, o := range jobs {
					if len(name) != 2 || versions[name] > 0 && jobs[name].revision == 0 {
						continue
					}
					j, err := a.c.jobs.GetJob(a.admin, &apiv1.GetJobRequest{Name: name})
					if exists := err == nil; exists != o.exists {
						t.Errorf("the job %s exists: %t, its events say %t", name, exists, o.exists)
					}
					_ = j
				}
				for name, version := range secrets {
					if versions[name] < version {
						t.Errorf("the secret %s has version %d, and %d events", name, version, versions[name])
					}
				}
				if c := a.verify(); !c.Ok || c.First != 1 || c.Events != c.Last || c.Events < uint64(acknowledged)/3 {
					t.Errorf("%v", c)
				}
			})
		})
	}
}

// TestAuditDamage flips a byte of an event on the disk. The verification finds it and says where it is;
// the other events can still be read.
func TestAuditDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		for n := range 40 {
			if _, err := a.c.jobs.ApplyJob(a.admin, &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: fmt.Sprint("job-", n), Handler: &apiv1.Handler{Name: "native:none"}}}); err != nil {
				t.Fatal(err)
			}
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
		at := bytes.Index(content, []byte("job-20"))
		if at < 0 {
			t.Fatal("the file does not have the event")
		}
		f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A start would make the log again from the journal, as long as that has the events.
		if _, err := f.WriteAt([]byte{content[at+5] ^ 1}, int64(at+5)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if c := a.verify(); c.Ok || c.BrokenAt != 21 || c.Partition != "main" || c.Last != 40 {
			t.Errorf("%v", c)
		}
		if n := len(a.events(&apiv1.ListAuditEventsRequest{Code: "job."})); n < 38 {
			t.Errorf("%d events can be read", n)
		}
	})
}

// TestAuditOfCalls checks which calls make which events, and that triggers and refused calls make none.
func TestAuditOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		ctx := a.admin
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		jobs, runs, apps := a.c.jobs, a.c.runs, apiv1.NewAppsClient(a.c.conn)
		hourly := &apiv1.Job{Name: "j", App: "shop", Handler: &apiv1.Handler{Name: "native:none"}, Schedule: &apiv1.Schedule{Every: "1h"}}
		must(jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: hourly}))
		must(jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: hourly})) // unchanged
		must(jobs.PauseJob(ctx, &apiv1.PauseJobRequest{App: "shop", Name: "j"}))
		must(jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{App: "shop", Name: "j"}))
		must(jobs.SkipNext(ctx, &apiv1.SkipNextRequest{App: "shop", Name: "j"}))
		run, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{App: "shop", Name: "j"})
		must(run, err)
		must(runs.CancelRun(ctx, &apiv1.CancelRunRequest{App: "shop", Id: run.Id}))
		must(runs.RetryRun(ctx, &apiv1.RetryRunRequest{App: "shop", Id: run.Id}))
		must(apiv1.NewAlertsClient(a.c.conn).MarkError(ctx, &apiv1.MarkErrorRequest{App: "shop", Fingerprint: "0123456789abcdef", State: "ignored"}))
		must(apiv1.NewAlertsClient(a.c.conn).MarkError(ctx, &apiv1.MarkErrorRequest{App: "shop", Fingerprint: "0123456789abcdef", State: "acknowledged"}))
		must(apiv1.NewAlertsClient(a.c.conn).ClearErrorMark(ctx, &apiv1.ClearErrorMarkRequest{App: "shop", Fingerprint: "0123456789abcdef"}))
		must(apps.PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "shop", Weight: 2}}))
		must(apiv1.NewSecretsClient(a.c.conn).SetSecret(ctx, &apiv1.SetSecretRequest{App: "shop", Name: "s", ValueBytes: []byte("v")}))
		must(apiv1.NewValuesClient(a.c.conn).PutValue(ctx, &apiv1.PutValueRequest{App: "shop", Bucket: "b", Key: "k", ValueBytes: []byte("v")}))
		made, err := apiv1.NewAccessClient(a.c.conn).CreateToken(ctx, &apiv1.CreateTokenRequest{Name: "ci", Role: "viewer", Scope: "app:shop"})
		must(made, err)
		must(apiv1.NewAccessClient(a.c.conn).RevokeToken(ctx, &apiv1.RevokeTokenRequest{Id: made.Id}))
		must(jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{App: "shop", Action: "delete", All: true}))
		if _, err := jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{App: "shop", Name: "none"}); status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
		var got []string
		for _, e := range a.events(&apiv1.ListAuditEventsRequest{}) {
			got = append(got, e.Code+" "+e.Object)
		}
		want := []string{
			"job.created j", "job.changed j", "job.changed j", "job.skipped j", "run.cancelled " + run.Id, "run.retried " + run.Id, "error.ignored 0123456789abcdef", "error.acknowledged 0123456789abcdef", "error.cleared 0123456789abcdef", "app.created shop", "secret.set s", "value.set b/k",
			"access.principal ci", "access.token " + made.Id + " of ci", "access.revoked " + made.Id, "job.deleted j",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the events are\n%v, want\n%v", got, want)
		}
		for q, want := range map[*apiv1.ListAuditEventsRequest]int{
			{Code: "job."}: 5, {Code: "job.changed"}: 2, {App: "shop"}: 14, {App: "bank"}: 0, {Actor: "admin"}: 16, {Actor: "ci"}: 0,
		} {
			if n := len(a.events(q)); n != want {
				t.Errorf("%v: %d events, want %d", q, n, want)
			}
		}
	})
}

// attributions are the interceptors of servers with a guard.
func attributions(g *access.Guard) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.Unary, sched.AttributeUnary), grpc.ChainStreamInterceptor(g.Stream, sched.AttributeStream)}
}
