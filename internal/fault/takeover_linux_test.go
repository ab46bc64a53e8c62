package fault

import (
	"context"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/internal/history"
)

// TestKillUnderLoad kills a server that owns a partition while five hundred runs are on
// hosts. Another server continues the schedules within five seconds. Running attempts
// continue, report to the new owner and are not executed again.
func TestKillUnderLoad(t *testing.T) {
	formOf(t)
	// Each host has room for every run: the server gives a long queue to the host with
	// the most credits, which may be a single host.
	const runs, slots, limit = 500, 600, 5 * time.Second
	c := newCluster(t, shape{etcd: embedded, members: 3, servers: 3, hosts: 3, slots: slots, binary: program(t)})
	client := c.dial(time.Minute)
	defineJobs(t, client, c.service)
	o := newOrders(1)
	var producers errgroup.Group
	producers.SetLimit(32)
	for i := range runs {
		i := o.add("default/" + heldJob(i%len(c.service.doors)))
		producers.Go(func() error {
			_, err := o.ask(t.Context(), client, i)
			return err
		})
	}
	if err := producers.Wait(); err != nil {
		t.Fatal(err)
	}
	until(t, "the runs to be on the hosts", 30*time.Second, func() bool { return c.service.running("/held") == runs })
	until(t, "the schedules to fire", 30*time.Second, func() bool { return c.service.ended("/tick") > 12 && c.service.ended("/tock") > 12 })

	// The victim is the server that sent the tasks.
	sent, err := c.wire.heard()
	if err != nil || len(sent) < runs {
		t.Fatalf("%d tasks went to hosts, %v", len(sent), err)
	}
	epoch := sent[slices.IndexFunc(sent, func(d history.Dispatch) bool { return d.Group == "default" })].Epoch
	owners := c.owners()
	at := slices.IndexFunc(owners, func(o owner) bool { return o.epoch == epoch })
	if at < 0 {
		t.Fatalf("nobody owns the epoch %d: %v", epoch, owners)
	}
	victim := owners[at].server
	killed := time.Now()
	c.servers[victim].end(syscall.SIGKILL)
	took := map[string]time.Duration{}
	for _, job := range []string{"default/tick", "default/tock"} {
		// A task that was on its way to a host when its server was killed may still
		// begin.
		const underway = 500 * time.Millisecond
		until(t, job+" to fire again", time.Minute, func() bool {
			at, ok := c.service.first(job, killed.Add(underway))
			took[job] = at.Sub(killed)
			return ok
		})
	}
	t.Logf("after the kill, the schedules fired again within %v", took)
	for job, d := range took {
		if d > limit {
			t.Errorf("%s fired again %v after the server was killed, want at most %v", job, d, limit)
		}
	}
	for _, o := range c.owners() {
		if o.server == victim {
			t.Errorf("the server %d, which was killed, owns the epoch %d", o.server, o.epoch)
		}
	}
	until(t, "the new owner to know what runs", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		v, err := client.Overview(ctx, "default")
		return err == nil && v.GetRunning() >= runs
	})
	if n := c.service.running("/held"); n != runs {
		t.Errorf("%d of %d runs are executed after the kill", n, runs)
	}
	close(c.service.gate)
	for _, s := range c.servers {
		s.start()
	}
	c.works(o, "the kill")
	o.look(onceOnly(t.Context()), client)
	list := o.settle(t, client)
	for _, r := range list {
		if strings.HasPrefix(r.Job, "default/held") && (r.State != "succeeded" || r.Attempt != 1) {
			t.Errorf("run %s is %s after %d attempts", r.ID, r.State, r.Attempt)
		}
	}
	if n := c.service.ended("/held"); n != runs {
		t.Errorf("the %d runs were executed %d times", runs, n)
	}
	// No host failed. A task that was sent at the moment of the kill is in no journal;
	// the new owner waits until hosts have reported it.
	once := map[string]bool{}
	for _, r := range list {
		once[r.Job] = true
	}
	o.judge(t, c, list, slices.Sorted(maps.Keys(once))...)
}

// onceOnly returns a context that ends after 200 ms.
func onceOnly(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, cancel)
	return ctx
}
