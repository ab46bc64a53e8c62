package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// several are servers of one cluster in this process, on an etcd of their own.
type several struct {
	t     *testing.T
	dir   string
	token string // the file that members share
	etcd  *etcd.Member
	units int
	all   map[string]*process // by name
	at    map[string]string   // by name
}

const memberToken = "a-shared-secret-of-this-test"

// freePort returns an address of this machine that nobody listens on, below the
// ports that the kernel gives to outgoing connections.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if ln, err := net.Listen("tcp", address); err == nil {
			ln.Close() //nolint:errcheck // it has served
			return address
		}
	}
	t.Fatal("no free port in 100 attempts")
	return ""
}

func newSeveral(t *testing.T, units int, names ...string) *several {
	t.Helper()
	w := &several{t: t, dir: t.TempDir(), units: units, all: map[string]*process{}, at: map[string]string{}}
	w.token = filepath.Join(w.dir, "token")
	if err := os.WriteFile(w.token, []byte(memberToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	w.etcd, err = etcd.Start(t.Context(), etcd.MemberConfig{
		Name: "one", Dir: filepath.Join(w.dir, "etcd"), Client: "http://" + freePort(t), Peer: "http://" + freePort(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.etcd.Close() }) //nolint:errcheck // a test's
	for _, name := range names {
		w.start(name)
	}
	return w
}

func (w *several) start(name string) *process {
	w.t.Helper()
	if w.at[name] == "" {
		w.at[name] = freePort(w.t)
	}
	data := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(data, 0o700), os.WriteFile(filepath.Join(data, "token"), []byte(adminToken+"\n"), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("CLUSTER_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", name)
	}
	w.all[name] = launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{
			Data: data, Listen: w.at[name], TokenFile: w.token, Ready: ready, Logger: log,
			Etcd: node.EtcdConfig{Endpoints: []string{w.etcd.Client()}, Units: w.units, Settle: time.Second},
		})
	})
	return w.all[name]
}

func (w *several) host(name string, servers ...string) *process {
	w.t.Helper()
	var at []string
	for _, s := range servers {
		at = append(at, w.at[s])
	}
	return launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{
			Data: filepath.Join(w.dir, "host-"+name), Name: name, Nameserver: strings.Join(at, ","), TokenFile: w.token, Slots: 8, Ready: ready,
		})
	})
}

func (w *several) client(servers ...string) *sdk.Client {
	w.t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, "http://"+w.at[s])
	}
	c, err := sdk.Dial(w.t.Context(), strings.Join(urls, ","), sdk.Options{Token: adminToken, RetryFor: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	return c
}

// until asks a server for the cluster until it is as it should be.
func (w *several) until(c *sdk.Client, what string, is func(*sdk.Cluster) bool) *sdk.Cluster {
	w.t.Helper()
	var s *sdk.Cluster
	for begin := time.Now(); time.Since(begin) < 40*time.Second; {
		var err error
		if s, err = c.Cluster(w.t.Context()); err == nil && is(s) {
			w.t.Logf("%s, after %v", what, time.Since(begin).Round(time.Millisecond))
			return s
		}
	}
	w.t.Fatalf("waited 40 s for this: %s. There is %v", what, s)
	return nil
}

// owned returns by address how many units each server owns; nil while one is on
// its way or has no owner.
func owned(s *sdk.Cluster) map[string]int {
	n := map[string]int{}
	for _, u := range s.GetUnits() {
		if u.GetState() != "owned" {
			return nil
		}
		n[u.GetAddress()]++
	}
	return n
}

func unitOf(s *sdk.Cluster, name string) *sdk.Unit {
	for _, u := range s.GetUnits() {
		if u.GetName() == name {
			return u
		}
	}
	return nil
}

// TestUnitsMove: two servers share four units; a third one gets its share; jobs
// of all units run while units move to and fro; a server that is drained owns
// nothing and loses nothing.
func TestUnitsMove(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 4, "a", "b")
	c := w.client("a", "b")
	w.until(c, "two servers own two units each", func(s *sdk.Cluster) bool {
		n := owned(s)
		return n[w.at["a"]] == 2 && n[w.at["b"]] == 2
	})
	w.host("h", "a", "b")
	var apps []string
	for i := range 6 {
		app := fmt.Sprint("app", i)
		apps = append(apps, app)
		if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "hello", Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Cluster(t.Context())
	if err != nil || s.Apps != 6 {
		t.Fatalf("%v, %v", s, err)
	}
	// Triggers go on all the time, each with its key.
	var stop atomic.Bool
	done := make(chan map[string][]string, 1)
	go func() {
		runs := map[string][]string{}
		for i := 0; !stop.Load(); i++ {
			app := apps[i%len(apps)]
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			r, err := c.Trigger(ctx, sdk.Trigger{App: app, Job: "hello", Key: fmt.Sprint("k", i)})
			cancel()
			if err != nil {
				t.Errorf("trigger %d of %s: %v", i, app, err)
				break
			}
			runs[app] = append(runs[app], r.RunID)
		}
		done <- runs
	}()

	w.start("c")
	began := time.Now()
	w.until(c, "the third server owns a unit", func(s *sdk.Cluster) bool { return owned(s)[w.at["c"]] >= 1 })
	t.Logf("an idle server owns its share after %v", time.Since(began).Round(time.Millisecond))

	u := s.Units[1]
	to := w.at["a"]
	if u.Address == to {
		to = w.at["b"]
	}
	began = time.Now()
	if _, err := c.MoveUnit(t.Context(), u.Name, to); err != nil {
		t.Fatal(err)
	}
	w.until(c, "the unit is where it was sent", func(s *sdk.Cluster) bool {
		u := unitOf(s, u.Name)
		return u.GetAddress() == to && u.GetState() == "owned"
	})
	t.Logf("a planned move took %v from the command", time.Since(began).Round(time.Millisecond))

	if _, err := c.Drain(t.Context(), w.at["a"]); err != nil {
		t.Fatal(err)
	}
	w.until(c, "the drained server owns nothing", func(s *sdk.Cluster) bool { n := owned(s); return n != nil && n[w.at["a"]] == 0 })
	if err := w.all["a"].stop(); err != nil {
		t.Error(err)
	}
	stop.Store(true)
	runs := <-done
	n := 0
	for app, ids := range runs {
		for _, id := range ids {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			r, err := c.Wait(ctx, app, id)
			cancel()
			if err != nil || r.State != sdk.Succeeded || r.Attempt != 1 {
				t.Fatalf("run %s of %s: %v, %v", id, app, r, err)
			}
			n++
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != len(runs[app]) {
			t.Errorf("%s: a run has two keys", app)
		}
	}
	t.Logf("%d runs", n)
	if n < 50 {
		t.Errorf("%d runs in all that time", n)
	}
	if got, err := c.Apps(t.Context()); err != nil || len(got) != len(apps) {
		t.Errorf("%d apps, %v", len(got), err)
	}
	_ = metadata.MD{}
	_ = apiv1.Assignment{}
}
