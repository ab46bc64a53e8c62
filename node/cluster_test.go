package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// several is a cluster of servers in this process, with an etcd of its own.
type several struct {
	t          *testing.T
	dir        string
	token      string // the file with the token that members share
	etcd       *etcd.Member
	partitions int
	most       int                 // up to how many hosts each works for all partitions; 0: the default
	secret     string              // file with the key of the secrets; "": each server makes one
	tls        string              // see CertificatesConfig.TLS; with "on", clients verify the servers
	audit      time.Duration       // how often ends of audit logs are anchored; 0: the default
	proxied    bool                // an authenticating proxy at 127.0.0.1 names visitors
	split      float64             // the rate, in schedules a second, from which an app is split; 0: the default
	backups    bool                // each makes backups to the directory backups beside its data
	all        map[string]*process // by name
	at         map[string]string   // by name
}

const (
	memberToken = "a-shared-secret-of-this-test"
	workerToken = "wh_a-workers-token-of-this-test"
)

func newSeveral(t *testing.T, partitions int, names ...string) *several {
	t.Helper()
	w := &several{t: t, dir: t.TempDir(), partitions: partitions, all: map[string]*process{}, at: map[string]string{}}
	w.token = filepath.Join(w.dir, "token")
	if err := os.WriteFile(w.token, []byte(memberToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	w.etcd, err = etcd.Start(t.Context(), etcd.MemberConfig{
		Name: "one", Dir: filepath.Join(w.dir, "etcd"), Client: "http://" + testkit.FreeAddress(t), Peer: "http://" + testkit.FreeAddress(t),
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
		w.at[name] = testkit.FreeAddress(w.t)
	}
	data := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(data, 0o700), os.WriteFile(filepath.Join(data, "token"), []byte(adminToken+"\n"), 0o600),
		os.WriteFile(filepath.Join(data, "host-token"), []byte(workerToken+"\n"), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	var limits transport.Limits
	var people node.PeopleConfig
	if w.proxied {
		limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		people.AuthProxy = node.AuthProxy{Header: userHeader, Groups: groupsHeader}
	}
	var backups node.BackupsConfig
	if w.backups {
		backups.Dir = data + "-backups"
	}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("CLUSTER_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", name)
	}
	w.all[name] = launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.RecordsRefusals(node.ServerConfig{
			Data: data, Listen: w.at[name], TokenFile: w.token, Ready: ready, Logger: log,
			Etcd:      node.EtcdConfig{Endpoints: []string{w.etcd.Client()}, Units: w.partitions, SplitRate: w.split, MaxHosts: w.most, Settle: time.Second},
			Placement: node.Placement{Zone: "zone-" + name, Capacity: 3}, Certificates: node.CertificatesConfig{TLS: w.tls}, SecretKey: w.secret, Limits: limits, People: people, Backups: backups,
		}, w.audit))
	})
	return w.all[name]
}

func (w *several) host(name string, servers ...string) *process {
	w.t.Helper()
	return w.hostOf(name, nil, servers...)
}

// hostOf is host for some apps; without apps it serves all.
func (w *several) hostOf(name string, apps []string, servers ...string) *process {
	w.t.Helper()
	var at []string
	for _, s := range servers {
		at = append(at, w.at[s])
	}
	return launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Host(ctx, node.HostConfig{
			Data: filepath.Join(w.dir, "host-"+name), Name: name, Nameserver: strings.Join(at, ","), TokenFile: w.token, Apps: apps, Slots: 8, Ready: ready,
		})
	})
}

func (w *several) client(servers ...string) *sdk.Client {
	w.t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, w.url(s))
	}
	c, err := sdk.Dial(w.t.Context(), strings.Join(urls, ","), sdk.Options{Token: adminToken, RetryFor: time.Minute, TLS: w.verify(servers[0])})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	return c
}

func (w *several) url(server string) string {
	if w.tls == "on" {
		return "https://" + w.at[server]
	}
	return "http://" + w.at[server]
}

// verify returns how clients verify the servers; nil: they have no TLS.
func (w *several) verify(server string) *tls.Config {
	if w.tls != "on" {
		return nil
	}
	return trusting(w.t, filepath.Join(w.dir, server))
}

// until requests the cluster's status until is reports true.
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

// owned returns by address how many partitions each server owns; nil while a partition is
// moving or has no owner.
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

func partitionOf(s *sdk.Cluster, name string) *sdk.Unit {
	for _, u := range s.GetUnits() {
		if u.GetName() == name {
			return u
		}
	}
	return nil
}

// TestUnitsMove: two servers share four partitions, and a third one gets its share. Jobs
// of all partitions run while partitions move back and forth. A server that is drained
// owns nothing and loses nothing.
func TestUnitsMove(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 4, "a", "b")
	c := w.client("a", "b")
	w.until(c, "two servers own two partitions each", func(s *sdk.Cluster) bool {
		n := owned(s)
		return n[w.at["a"]] == 2 && n[w.at["b"]] == 2
	})
	w.host("h", "a", "b")
	w.until(c, "the servers to say what they weigh", func(s *sdk.Cluster) bool {
		for _, m := range s.GetServers() {
			if m.GetCapacity() != 3 || m.GetZone() != map[string]string{w.at["a"]: "zone-a", w.at["b"]: "zone-b"}[m.GetAddress()] {
				return false
			}
		}
		return len(s.GetServers()) == 2
	})
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
	// Triggers continue all the time, each with its key.
	var stop atomic.Bool
	done := make(chan map[string][]string, 1)
	go func() {
		runs := map[string][]string{}
		for i := 0; i < 50 || !stop.Load(); i++ {
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
	w.until(c, "the third server owns a partition", func(s *sdk.Cluster) bool { return owned(s)[w.at["c"]] >= 1 })
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
	w.until(c, "the partition is where it was sent", func(s *sdk.Cluster) bool {
		u := partitionOf(s, u.Name)
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
	if got, err := c.Apps(t.Context()); err != nil || len(got) != len(apps) {
		t.Errorf("%d apps, %v", len(got), err)
	}
}

// TestUnservedUnitIsGivenUp: etcd has a server as the owner of a partition that it does
// not serve, as after a lost answer to the end of its ownership. The desired owner gets
// the partition, although the lease of the first server continues.
func TestUnservedUnitIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	s, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	partition, other := s.Units[0], ""
	for _, m := range s.Servers {
		if m.Address != partition.Address {
			other = m.Id
		}
	}
	log := slog.New(slog.DiscardHandler)
	behind, err := etcd.Connect(t.Context(), etcd.Config{Endpoints: []string{w.etcd.Client()}, Server: other, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close() //nolint:errcheck // a test's
	var j *etcd.Journal
	for j == nil { // the owner takes it back when it can
		if err := behind.Depose(t.Context(), partition.Name); err != nil {
			t.Fatal(err)
		}
		if j, err = behind.Own(t.Context(), partition.Name); err != nil {
			var held *etcd.OwnedError
			if !errors.As(err, &held) && !errors.Is(err, journal.ErrFenced) {
				t.Fatal(err)
			}
		}
	}
	w.until(c, "the partition to be served where it was", func(s *sdk.Cluster) bool {
		u := partitionOf(s, partition.Name)
		return u.GetAddress() == partition.Address && u.GetState() == "owned" && u.GetEpoch() > j.Epoch()
	})
}

// untilBothOwn waits until the servers a and b own partitions.
func (w *several) untilBothOwn(c *sdk.Client) {
	w.t.Helper()
	w.until(c, "both servers own something", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] > 0 && n[w.at["b"]] > 0 })
}

// place applies a job in so many apps that every partition has one, and returns an app of
// each partition, by partition.
func (w *several) place(c *sdk.Client, servers ...string) map[string]string {
	w.t.Helper()
	conn, ctx := dialVerified(w.t, w.all[servers[0]], adminToken, w.verify(servers[0]))
	for i := range w.partitions {
		app := fmt.Sprint("placed", i)
		if _, _, err := c.PushModule(w.t.Context(), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			w.t.Fatal(err)
		}
	}
	apps := map[string]string{}
	for i := range w.partitions {
		app := fmt.Sprint("placed", i)
		a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: app})
		if err != nil {
			w.t.Fatal(err)
		}
		if other, twice := apps[a.Unit]; twice {
			w.t.Fatalf("%s and %s are in the partition %s, while others are empty", app, other, a.Unit)
		}
		apps[a.Unit] = app
	}
	return apps
}

// TestAnyServerWillDo: a browser, a script or a producer reaches and sees the apps of all
// partitions, whatever server it uses.
func TestAnyServerWillDo(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	w.host("h", "b", "a")
	w.until(c, "the host has a session with the owner of each partition", func(s *sdk.Cluster) bool {
		return !slices.ContainsFunc(s.Units, func(u *sdk.Unit) bool { return u.Hosts != 1 })
	})
	for name := range w.all {
		do := func(method, path, body string) (int, string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.at[name]+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+adminToken)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // it was read
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(b)
		}
		for _, app := range apps {
			job := "by-" + name
			if code, body := do("PUT", "/api/v1/apps/"+app+"/modules/greet/versions/by-"+name, string(greet.Module)); code != http.StatusCreated {
				t.Errorf("upload to %s by %s: %d %s", app, name, code, body)
			}
			if code, body := do("PUT", "/api/v1/apps/"+app+"/jobs/"+job, `{"handler":{"module":"greet@by-`+name+`"},"input":"you"}`); code != http.StatusOK {
				t.Errorf("apply in %s by %s: %d %s", app, name, code, body)
			}
			if code, body := do("GET", "/api/v1/apps/"+app+"/jobs", ""); code != http.StatusOK || !strings.Contains(body, job) {
				t.Errorf("jobs of %s by %s: %d %s", app, name, code, body)
			}
			if code, body := do("GET", "/api/v1/apps/nowhere-"+app+"/jobs", ""); code != http.StatusOK || strings.Contains(body, job) {
				t.Errorf("jobs of an app that is nowhere, by %s: %d %s", name, code, body)
			}
		}
		if code, body := do("GET", "/api/v1/apps", ""); code != http.StatusOK || strings.Count(body, `"name":"placed`) != len(apps) || strings.Contains(body, "nowhere") {
			t.Errorf("apps by %s: %d %s", name, code, body)
		}
		if code, body := do("GET", "/api/v1/hosts", ""); code != http.StatusOK || strings.Count(body, `"id":`) != 1 {
			t.Errorf("hosts by %s: %d %s", name, code, body)
		}
		if code, body := do("GET", "/api/v1/servers", ""); code != http.StatusOK || strings.Count(body, `"id":`) != 2 {
			t.Errorf("servers by %s: %d %s", name, code, body)
		}
		if code, body := do("GET", "/api/v1/cluster", ""); code != http.StatusOK || strings.Count(body, `"standbys":["srv-`) != 3 {
			t.Errorf("cluster by %s: %d %s", name, code, body)
		}
		if code, body := do("GET", "/metrics", ""); code != http.StatusOK || !strings.Contains(body, `wheelwork_runs_live{unit="main`) {
			t.Errorf("metrics of %s: %d", name, code)
		}
	}
	for _, app := range apps {
		for name := range w.all {
			r, err := c.TriggerRun(t.Context(), sdk.Trigger{App: app, Job: "by-" + name})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			got, err := c.Wait(ctx, app, r.Id)
			cancel()
			if err != nil || got.State != sdk.Succeeded {
				t.Errorf("run of %s: %v, %v", app, got, err)
			}
		}
	}
	// A worker in a user's program serves all of them as well.
	working, quit := context.WithCancel(t.Context())
	quitted := make(chan error, 1)
	go func() {
		quitted <- worker.Run(working, worker.Options{Address: "http://" + w.at["b"], Token: workerToken, Logger: slog.New(slog.DiscardHandler)},
			worker.Handle("f", func(context.Context, *worker.Task) ([]byte, error) { return []byte("done"), nil }))
	}()
	for _, app := range apps {
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "in-program", Handler: &sdk.Handler{Name: "native:f"}}); err != nil {
			t.Fatal(err)
		}
		r, err := c.TriggerRun(t.Context(), sdk.Trigger{App: app, Job: "in-program"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := c.Wait(ctx, app, r.Id)
		cancel()
		if err != nil || got.State != sdk.Succeeded {
			t.Errorf("run of %s in a program: %v, %v", app, got, err)
		}
	}
	quit()
	if err := <-quitted; err != nil {
		t.Error(err)
	}
	for _, refused := range []struct {
		what string
		do   func() error
		want codes.Code
	}{
		{"move to nobody", func() error { _, err := c.MoveUnit(t.Context(), "main", "srv-none"); return err }, codes.NotFound},
		{"move nothing", func() error { _, err := c.MoveUnit(t.Context(), "none", w.at["a"]); return err }, codes.NotFound},
		{"drain nobody", func() error { _, err := c.Drain(t.Context(), "srv-none"); return err }, codes.NotFound},
		{"undrain nobody", func() error { _, err := c.Undrain(t.Context(), "srv-none"); return err }, codes.NotFound},
		{"drain all", func() error {
			if _, err := c.Drain(t.Context(), w.at["a"]); err != nil {
				return err
			}
			_, err := c.Drain(t.Context(), w.at["b"])
			return err
		}, codes.FailedPrecondition},
		{"move to a drained one", func() error { _, err := c.MoveUnit(t.Context(), "main", w.at["a"]); return err }, codes.FailedPrecondition},
	} {
		var e *sdk.Error
		if err := refused.do(); !errors.As(err, &e) || e.Code != refused.want {
			t.Errorf("%s: %v", refused.what, err)
		}
	}
	s, err := c.Undrain(t.Context(), w.at["a"])
	if err != nil || slices.ContainsFunc(s.GetServers(), func(m *sdk.Member) bool { return m.State != "up" }) {
		t.Errorf("undrained: %v, %v", s, err)
	}
}

// TestRoutedCallsAreGuarded: calls of every method pass the guard before they reach a
// partition.
func TestRoutedCallsAreGuarded(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 1, "a")
	conn, _ := dial(t, w.all["a"], adminToken)
	anonymous, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(k)
				name := "/" + string(f.Services().Get(i).FullName()) + "/" + string(m.Name())
				if name == apiv1.Access_SignIn_FullMethodName || name == apiv1.Access_ClaimLogin_FullMethodName || name == apiv1.Machines_Join_FullMethodName || name == apiv1.Machines_RenewCertificate_FullMethodName {
					continue // it needs no token, and waits for the partition with the users
				}
				if err := call(anonymous, conn, m, name); status.Code(err) != codes.Unauthenticated && m.Name() != "GetVersion" {
					t.Errorf("%s without a token: %v", name, err)
				}
				n++
			}
		}
		return true
	})
	if n < 60 {
		t.Errorf("%d methods", n)
	}
}

// TestProduceForSeveralUnits: one stream may carry commands of apps in several
// partitions, in separate messages and mixed. Each message is answered, in order.
func TestProduceForSeveralUnits(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3, "a")
	c := w.client("a")
	apps := slices.Sorted(maps.Values(w.place(c, "a")))
	for _, app := range apps {
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "j", Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
			t.Fatal(err)
		}
	}
	conn, ctx := dial(t, w.all["a"], adminToken)
	stream, err := apiv1.NewProducerClient(conn).Produce(ctx)
	if err != nil {
		t.Fatal(err)
	}
	trigger := func(app string, key int) *apiv1.Command {
		return &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{App: app, Name: "j", IdempotencyKey: fmt.Sprint(key)}}}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	const messages = 60
	var want []int
	for n := range messages {
		m := &apiv1.ProduceRequest{Number: uint64(n + 1)}
		app := apps[rnd.IntN(len(apps))]
		for k := range 1 + rnd.IntN(5) {
			if n%3 == 0 { // mixed
				app = apps[rnd.IntN(len(apps))]
			}
			m.Commands = append(m.Commands, trigger(app, n*10+k))
		}
		want = append(want, len(m.Commands))
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	runs := map[string]bool{}
	for n := range messages {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Number != uint64(n+1) || len(m.Results) != want[n] {
			t.Fatalf("answer %d has the number %d and %d results, want %d", n+1, m.Number, len(m.Results), want[n])
		}
		for _, r := range m.Results {
			if r.Result != "accepted" || runs[r.RunId] {
				t.Errorf("answer %d: %v", n+1, r)
			}
			runs[r.RunId] = true
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	kept, err := apiv1.NewProducerClient(conn).Produce(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Send(&apiv1.ProduceRequest{Number: 1, Ack: "accepted", Commands: []*apiv1.Command{trigger(apps[0], 1), trigger(apps[1], 1)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a mixed message to the ingress: %v", err)
	}
}

// TestAcceptedCommandsFollowTheirUnit: commands that a server has acknowledged as
// accepted are applied by the owner of the partition at that time.
func TestAcceptedCommandsFollowTheirUnit(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.until(c, "both servers own a partition", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 1 && n[w.at["b"]] == 1 })
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: "pay", Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), &sdk.Job{App: "pay", Name: "j", Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
		t.Fatal(err)
	}
	conn, ctx := dial(t, w.all["a"], adminToken)
	where, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	from, to := "a", "b"
	if where.Address == w.at["b"] {
		from, to = "b", "a"
	}
	// One command waits in the owner's ingress, as a dead letter, until the partition has
	// moved. Others follow all the time while it moves.
	conn, ctx = dial(t, w.all[from], adminToken)
	queues := apiv1.NewQueuesClient(conn)
	early, err := apiv1.NewProducerClient(conn).Produce(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := early.Send(&apiv1.ProduceRequest{Number: 1, Ack: "accepted", Commands: []*apiv1.Command{
		{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{App: "pay", Name: "later"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := early.Recv(); err != nil {
		t.Fatal(err)
	}
	dead := func(want int64) {
		t.Helper()
		for begin := time.Now(); ; {
			q, err := queues.GetQueues(ctx, &apiv1.GetQueuesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if q.DeadLetters == want {
				return
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%d dead letters, want %d", q.DeadLetters, want)
			}
		}
	}
	dead(1)
	accepted, unsure := 0, 0
	moving := make(chan error, 1)
	for begin := time.Now(); time.Since(begin) < 20*time.Second; {
		s, err := apiv1.NewProducerClient(conn).Produce(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m := &apiv1.ProduceRequest{Number: 1, Ack: "accepted"}
		for k := range 100 {
			m.Commands = append(m.Commands, &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{
				App: "pay", Name: "j", IdempotencyKey: fmt.Sprint(accepted + k),
			}}})
		}
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			unsure = len(m.Commands) // they may have been accepted
			break                    // the partition has left this server
		}
		accepted += len(m.Commands)
		if a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: "pay"}); err == nil && a.Address == w.at[to] {
			break // from now on commands are forwarded
		}
		if accepted == 1000 {
			go func() { _, err := c.Drain(t.Context(), w.at[from]); moving <- err }() // so that it does not come back
		}
	}
	if err := <-moving; err != nil {
		t.Fatal(err)
	}
	w.until(c, "the partition is elsewhere", func(s *sdk.Cluster) bool { return partitionOf(s, where.Unit).GetAddress() == w.at[to] })
	if _, err := c.Apply(t.Context(), &sdk.Job{App: "pay", Name: "later", Handler: &sdk.Handler{Module: "greet@1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := queues.ReplayDeadLetters(ctx, &apiv1.ReplayDeadLettersRequest{All: true}); err != nil {
		t.Fatal(err)
	}
	accepted++
	done, since := int64(-1), time.Now()
	for done < int64(accepted) {
		o, err := c.Overview(t.Context(), "pay")
		if err == nil && o.Queued != done {
			done, since = o.Queued, time.Now()
		}
		if time.Since(since) > 30*time.Second { // nothing is applied any longer
			t.Fatalf("%d commands were accepted, and %d are done, %v", accepted, done, err)
		}
		<-time.After(20 * time.Millisecond) // a faster poll would be most of the servers' work
	}
	if most := int64(accepted + unsure); done > most {
		t.Errorf("%d commands were done of at most %d", done, most)
	}
	t.Logf("%d commands were accepted and done", accepted)
	dead(0)
}
