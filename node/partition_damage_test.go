package node_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/store"
)

// serve runs a server of the cluster on a data directory.
func (w *several) serve(ctx context.Context, data, at string, log *slog.Logger, ready func(node.Ready)) error {
	return node.Server(ctx, node.ServerConfig{
		Data: data, Listen: at, TokenFile: w.token, Ready: ready, Logger: log,
		Etcd: node.EtcdConfig{Endpoints: []string{w.etcd.Client()}, Units: w.partitions, Settle: time.Second},
	})
}

// damageableOfPartitions are the files of a cluster's server that hold the state of its
// partitions.
func damageableOfPartitions() (all []string) {
	for _, pattern := range damageable {
		if strings.HasPrefix(pattern, "store/") {
			all = append(all, pattern, "units/*/"+pattern)
		}
	}
	return append(all, "server-id", "form")
}

// shortPartitionDamages are the cases that run without WHEELWORK_LONG.
var shortPartitionDamages = regexp.MustCompile(`^a/(store/view/MANIFEST remove|units/main.1/store/(view/.*sst truncate|view/MANIFEST remove|history/.*seg (flip|remove)))$`)

// TestDamagedFilesOfUnits is TestDamagedFiles for a cluster's server, whose journals are
// in etcd: state that the journal has is restored, and missing state is reported.
func TestDamagedFilesOfUnits(t *testing.T) {
	w := newSeveral(t, 2, "a")
	host := w.host("h", "a")
	c := w.client("a")
	l := &remembered{token: adminToken, retry: 20 * time.Second}
	l.start = func(ctx context.Context, dir string, log *slog.Logger, ready func(node.Ready)) error {
		return w.serve(ctx, dir, w.at["a"], log, ready)
	}
	for _, app := range w.place(c, "a") {
		l.fill(t, c, app, 6)
	}
	if err := errors.Join(host.stop(), w.all["a"].stop()); err != nil {
		t.Fatal(err)
	}
	tried := l.damageAll(t, []string{filepath.Join(w.dir, "a")}, damageableOfPartitions(), shortPartitionDamages)
	if least := 4; tried < least {
		t.Errorf("only %d files were damaged, want at least %d: the names have changed", tried, least)
	}
}

// trimmed removes all records from the journals of the partitions, as an owner does that
// has all of them in its store. No server may run.
func (w *several) trimmed() {
	w.t.Helper()
	c, err := etcd.Connect(within(w.t), etcd.Config{Endpoints: []string{w.etcd.Client()}, Server: "trims", Address: "none"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	for _, partition := range []string{"main", "main.1"} {
		j, err := c.Own(within(w.t), partition)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := errors.Join(j.Trim(j.Next()), j.Close()); err != nil {
			w.t.Fatal(err)
		}
		if first, next, err := c.Span(within(w.t), partition); err != nil || first != next || next == 1 {
			w.t.Fatalf("the journal of %s has the records from %d up to %d: %v", partition, first, next, err)
		}
	}
}

// TestUnitIsMadeAgainOnlyWithProof: the journals do not reach back to the snapshots of a
// server, so its stores are the only copies. No start and no command discards one: `store
// rebuild` is refused, and a damaged store stays in quarantine until the server has the
// state from another one.
func TestUnitIsMadeAgainOnlyWithProof(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	host := w.host("h", "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	l := &remembered{token: adminToken, retry: 30 * time.Second}
	for _, app := range w.place(c, "a") {
		l.fill(t, c, app, 6)
	}
	if err := errors.Join(host.stop(), w.all["b"].stop()); err != nil {
		t.Fatal(err)
	}
	w.until(w.client("a"), "one server owns all", func(s *sdk.Cluster) bool { return owned(s)[w.at["a"]] == 2 })
	if err := w.all["a"].stop(); err != nil {
		t.Fatal(err)
	}
	w.trimmed()
	storeOf := func(server, partition string) string { return filepath.Join(w.dir, server, partition, "store") }
	reach := func(server, partition string) store.Reach {
		t.Helper()
		r, err := store.Look(storeOf(server, partition))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	started := func(name string) (*process, *lockedBuffer) {
		says := &lockedBuffer{}
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return w.serve(ctx, filepath.Join(w.dir, name), w.at[name], slog.New(slog.NewTextHandler(says, nil)), ready)
		}), says
	}

	// A rebuild would lose all records.
	for _, partition := range []string{"", "units/main.1"} {
		if r := reach("a", partition); r.Snapshot > 0 || r.View == 0 {
			t.Fatalf("the store of %q has a snapshot already: %+v", partition, r)
		}
	}
	r, err := offline.RebuildStore(filepath.Join(w.dir, "a"), false, nil)
	if want := []string{"", "units/main.1"}; err != nil || !slices.Equal(r.Asked, want) {
		t.Fatalf("asked for %q, want %q: %v", r.Asked, want, err)
	}
	a, says := started("a")
	if missing := l.missing(t, a); len(missing) > 0 {
		t.Errorf("after a rebuild that was asked for: %v", missing)
	}
	if n := strings.Count(says.String(), "was not rebuilt, because records would be lost; `wheelwork store rebuild` requested it"); n != 2 {
		t.Errorf("%d rebuilds were refused, want 2:\n%s", n, says.String())
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	// A damaged projection, while the other server is down.
	kept := filepath.Join(storeOf("b", "units/main.1"), "quarantine", "of-a-person", "file")
	if err := errors.Join(os.Remove(filepath.Join(storeOf("b", "units/main.1"), "view", "MANIFEST")), os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	says = &lockedBuffer{}
	ended := make(chan error, 1)
	go func() {
		ended <- w.serve(ctx, filepath.Join(w.dir, "b"), w.at["b"], slog.New(slog.NewTextHandler(says, nil)), func(node.Ready) {})
	}()
	said := func(what string) {
		t.Helper()
		for end := within(t); !strings.Contains(says.String(), what); {
			select {
			case err := <-ended:
				t.Fatalf("it ended with %v", err)
			case <-end.Done():
				t.Fatalf("it did not say %q:\n%s", what, says.String())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	said("cannot take over before\" partition=main.1")
	aside := func() []string {
		placements, err := filepath.Glob(filepath.Join(storeOf("b", "units/main.1"), "quarantine", "*", "view"))
		if err != nil {
			t.Fatal(err)
		}
		return placements
	}
	if placements := aside(); len(placements) != 1 {
		t.Fatalf("the damaged view is in %v", placements)
	}

	// The other server has the state.
	a, _ = started("a")
	said("this standby has the state of the owner\" partition=main.1")
	if placements := aside(); len(placements) != 0 {
		t.Errorf("what is not needed is kept in %v", placements)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what a person kept in the quarantine is gone: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	w.until(w.client("b"), "the other server owns all", func(s *sdk.Cluster) bool { return owned(s)[w.at["b"]] == 2 })
	if missing := l.missing(t, &process{Ready: node.Ready{URL: "http://" + w.at["b"]}}); len(missing) > 0 {
		t.Errorf("of the state of the other server: %v", missing)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// The fetched state has a snapshot, so a rebuild loses nothing, and keeps the old
	// projection.
	before := reach("b", "units/main.1")
	if before.Snapshot == 0 {
		t.Fatal("the fetched state has no snapshot")
	}
	if _, err := offline.RebuildStore(filepath.Join(w.dir, "b"), false, nil); err != nil {
		t.Fatal(err)
	}
	b, says2 := started("b")
	if missing := l.missing(t, b); len(missing) > 0 {
		t.Errorf("after a rebuild: %v", missing)
	}
	if placements := aside(); len(placements) != 1 || !strings.Contains(says2.String(), "was rebuilt as `wheelwork store rebuild` requested\" partition=main.1") {
		t.Errorf("the old view is in %v; the server said\n%s", placements, says2.String())
	}
}
