package partition

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/life"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

// TestOwnershipGoesDuringTheReplay: a server that lost a partition while it read the
// journal finds the records of the next owner before its own journal notices the loss. It
// then becomes a standby, and does not end.
func TestOwnershipGoesDuringTheReplay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := etcd.Start(ctx, etcd.MemberConfig{Name: "one", Dir: filepath.Join(t.TempDir(), "etcd"), Client: "http://" + testkit.FreeAddress(t), Peer: "http://" + testkit.FreeAddress(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // a test's
	connect := func(server string) *etcd.Cluster {
		c, err := etcd.Connect(ctx, etcd.Config{Endpoints: []string{m.Client()}, Server: server, Address: server + ".test:1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
		return c
	}
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	u := &Replica{name: "main", log: log, meter: func(string) (metric.Meter, func(), error) { return noop.Meter{}, func() {}, nil }, dir: func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }}
	u.view = cluster.NewView(connect("a"), "main", "a", "a.test:1", log)
	u.conf = sched.Config{ID: "a", Logger: log, Inspect: func(context.Context, *modules.Upload, string) (sched.ModuleInfo, error) {
		return sched.ModuleInfo{}, errors.New("there are no modules")
	}}
	if u.conf.Modules, err = modules.Open(u.dir("modules")); err != nil {
		t.Fatal(err)
	}
	if u.store, err = store.Open(store.Config{Dir: u.dir("store")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.store.Close() }) //nolint:errcheck // a test's
	u.conf.Store = u.store
	lost, err := u.view.Etcd.Own(ctx, u.name)
	if err != nil {
		t.Fatal(err)
	}
	other := connect("b")
	if err := other.Depose(ctx, u.name); err != nil {
		t.Fatal(err)
	}
	next, err := other.Own(ctx, u.name)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	if _, err := next.Append([]journal.Record{{Slot: journal.Slot{App: "x"}}}, func(err error) { written <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if lost.Err() != nil {
		t.Fatalf("the journal knows already that it was lost: %v", lost.Err())
	}
	u.owned = &ownership{journal: lost}
	if event, err := u.Restore(ctx); event != life.Lost || err != nil {
		t.Errorf("got the event %s and %v, want %s", event, err, life.Lost)
	}
}
