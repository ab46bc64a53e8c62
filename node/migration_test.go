package node_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// flow triggers runs of one job at a steady rate, each with a key of its own, until it is stopped.
type flow struct {
	stop    context.CancelFunc
	done    chan struct{}
	sent    atomic.Int64
	refused atomic.Pointer[error] // the first call that failed; nil: none
}

func newFlow(c *sdk.Client, app, job string, perSecond int) *flow {
	ctx, stop := context.WithCancel(context.Background())
	f := &flow{stop: stop, done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(f.done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var open []*sdk.Pending
		for ctx.Err() == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			for due := int64(time.Since(begin).Seconds() * float64(perSecond)); f.sent.Load() < due; {
				open = append(open, c.TriggerAsync(context.Background(), sdk.Trigger{App: app, Job: job, Key: fmt.Sprint(f.sent.Add(1))}))
			}
		}
		for _, p := range open {
			if _, err := p.Wait(context.Background()); err != nil {
				f.refused.CompareAndSwap(nil, &err)
			}
		}
	}()
	return f
}

// ended stops the flow, and returns how many runs it has triggered.
func (f *flow) ended(t *testing.T) int64 {
	t.Helper()
	f.stop()
	<-f.done
	if err := f.refused.Load(); err != nil {
		t.Errorf("a call failed: %v", *err)
	}
	return f.sent.Load()
}

// TestMoveToCertificates moves three servers and four hosts of a running cluster from tokens to certificates, one
// process after another, and back, while 1 000 runs a second come. No call fails, and each run is there once.
func TestMoveToCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes most of a minute")
	}
	w := newSeveral(t, 3)
	w.tls, w.secret = "off", filepath.Join(w.dir, "secret.key")
	if err := os.WriteFile(w.secret, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		w.start(name)
	}
	c := w.client(names...)
	w.until(c, "each server owns a partition", func(s *sdk.Cluster) bool { return len(owned(s)) == 3 })
	apps := w.place(c, "a")
	for _, app := range apps {
		if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: "greet", Handler: &sdk.Handler{Module: "greet@1"}, Input: "you"}); err != nil {
			t.Fatal(err)
		}
	}
	var at []string
	for _, name := range names {
		at = append(at, w.at[name])
	}
	hosts := map[int]*process{}
	host := func(i int, token string) {
		t.Helper()
		if p := hosts[i]; p != nil {
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
		}
		cfg := node.HostConfig{Data: filepath.Join(w.dir, fmt.Sprint("host", i)), Name: fmt.Sprint("host", i), Nameserver: strings.Join(at, ","), TokenFile: w.token, JoinToken: token, Slots: 8}
		hosts[i] = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			cfg := cfg
			cfg.Ready = ready
			return node.Host(ctx, cfg)
		})
	}
	for i := range 4 {
		host(i, "")
	}
	connected := func(s *sdk.Cluster) bool {
		for _, u := range s.GetUnits() {
			if u.GetState() != "owned" || u.GetHosts() != 4 {
				return false
			}
		}
		return true
	}
	w.until(c, "four hosts work for all partitions", connected)
	servers := func(tls string) {
		t.Helper()
		w.tls = tls
		for _, name := range names {
			if err := w.all[name].stop(); err != nil {
				t.Fatal(err)
			}
			w.start(name)
			w.until(c, name+" is back, with --tls "+tls, connected)
		}
	}
	var flows []*flow
	for _, app := range apps {
		flows = append(flows, newFlow(c, app, "greet", 1000/len(apps)))
	}
	begin := time.Now()
	servers("both")
	token, err := c.CreateJoinToken(t.Context(), sdk.NewJoinToken{Uses: 4})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		host(i, token.Token)
	}
	w.until(c, "four hosts with certificates", connected)
	certificates, err := c.Certificates(t.Context())
	if err != nil || len(certificates) != 7 {
		t.Errorf("%d machines have certificates, want 7: %v", len(certificates), err)
	}
	for i := range 4 {
		host(i, "")
	}
	servers("off")
	took := time.Since(begin)
	var sent int64
	for _, f := range flows {
		sent += f.ended(t)
	}
	reaches(t, time.Minute, "each run has ended well, once", func() bool {
		var there int64
		for _, app := range apps {
			for _, err := range c.Runs(t.Context(), sdk.RunQuery{App: app, Job: "greet", State: "succeeded"}) {
				if err != nil {
					t.Fatal(err)
				}
				there++
			}
		}
		if there > sent {
			t.Fatalf("%d runs, of %d triggers", there, sent)
		}
		return there == sent
	})
	t.Logf("%d runs in %v", sent, took)
}
