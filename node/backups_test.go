package node_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// made starts a backup and waits for its end.
func made(t *testing.T, c *sdk.Client) *sdk.BackupPlan {
	t.Helper()
	ctx := within(t)
	p, err := c.StartBackup(ctx)
	if err != nil || p.RunningSince == nil {
		t.Fatalf("%v, %v", p, err)
	}
	for p.RunningSince != nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the backup did not end")
		}
		if p, err = c.Backups(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestPlannedBackup: a server makes a backup of everything, restores and opens it, and the file
// can be restored by its readers. An encrypted one has the keys, and its contents are only on the
// disk of the server. Nothing of the drill stays.
func TestPlannedBackup(t *testing.T) {
	for name, encrypted := range map[string]bool{"encrypted": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backups")
			reader := newRecipient(t)
			at, err := planned.ParseSchedule("0 0 1 1 *")
			if err != nil {
				t.Fatal(err)
			}
			cfg := node.ServerConfig{Data: dir, Backups: node.BackupsConfig{Dir: to, At: at, Keep: 2}}
			if encrypted {
				cfg.BackupRecipients = []string{reader.public}
			}
			p := serve(t, cfg, nil)
			c := client(t, p, p.Token)
			plan, err := c.Backups(within(t))
			if err != nil || plan.Schedule != "0 0 1 1 *" || plan.Keep != 2 || plan.Encrypted != encrypted || plan.Last != nil || plan.Directory != to {
				t.Fatalf("%v, %v", plan, err)
			}
			if _, err := c.Apply(within(t), &sdk.Job{Name: "fetch", Handler: &sdk.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{Url: "http://127.0.0.1:1/"}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Trigger(within(t), sdk.Trigger{Job: "fetch"}); err != nil {
				t.Fatal(err)
			}
			plan = made(t, c)
			d := plan.Drill
			if plan.Error != "" || plan.Last == nil || d == nil || d.Result != planned.Passed || d.Jobs != 1 || d.LiveRuns != 1 || d.Units != 1 {
				t.Fatalf("%v", plan)
			}
			entries, err := os.ReadDir(to)
			if err != nil || len(entries) != 1 || entries[0].Name() != plan.Last.File {
				t.Errorf("%v, %v", entries, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "backup-drill")); !os.IsNotExist(err) {
				t.Errorf("the drill has left its directory: %v", err)
			}
			content, err := os.ReadFile(filepath.Join(to, plan.Last.File))
			if err != nil {
				t.Fatal(err)
			}
			in, sealed, err := encryption.Open(bytes.NewReader(content), reader.ids)
			if err != nil || sealed != encrypted {
				t.Fatalf("encrypted %v, %v", sealed, err)
			}
			res, err := archive.Check(t.Context(), in, nil)
			if err != nil || res.Key != encrypted || res.Files != d.Files || res.Size != d.Bytes {
				t.Errorf("%+v, %v", res, err)
			}
			events := 0
			for e, err := range c.AuditEvents(within(t), sdk.AuditQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Code == "cluster.backup" {
					events++
				}
			}
			if events != 1 {
				t.Errorf("the backup has %d audit events", events)
			}
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			p = serve(t, cfg, nil) // the state outlives the process
			again, err := client(t, p, p.Token).Backups(within(t))
			if err != nil || again.Last.GetFile() != plan.Last.File || !again.NextAt.AsTime().Equal(plan.NextAt.AsTime()) {
				t.Errorf("after a restart: %v, %v", again, err)
			}
		})
	}
}

// TestNoPlannedBackup: a server without a directory for backups says so.
func TestNoPlannedBackup(t *testing.T) {
	p := serve(t, node.ServerConfig{Data: t.TempDir()}, nil)
	c := client(t, p, p.Token)
	if plan, err := c.Backups(within(t)); err != nil || plan.Server != "" {
		t.Errorf("%v, %v", plan, err)
	}
	if _, err := c.StartBackup(within(t)); err == nil || !strings.Contains(err.Error(), "--backup-dir") {
		t.Errorf("%v", err)
	}
}

// TestDrillFindsMissingCode: a backup that lacks the code of a module is whole as a file, and
// no server with it could run the jobs. The drill finds that.
func TestDrillFindsMissingCode(t *testing.T) {
	dir := t.TempDir()
	p := dev(t, node.DevConfig{Data: dir})
	l := &life{t: t}
	l.fill(client(t, p, p.Token))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := offline.Backup(t.Context(), dir, nil, archive.KeysLeftOut, &b); err != nil {
		t.Fatal(err)
	}
	for name, drop := range map[string]bool{"whole": false, "without code": true} {
		restored := filepath.Join(t.TempDir(), "restored")
		if _, err := archive.Restore(t.Context(), bytes.NewReader(b.Bytes()), restored, nil, nil); err != nil {
			t.Fatal(err)
		}
		if drop {
			if err := os.RemoveAll(filepath.Join(restored, "modules")); err != nil {
				t.Fatal(err)
			}
		}
		found, err := offline.Drill(t.Context(), restored, slog.New(slog.DiscardHandler))
		switch {
		case drop && (err == nil || !strings.Contains(err.Error(), "the code of 1 modules is missing")):
			t.Errorf("%s: %+v, %v", name, found, err)
		case !drop && (err != nil || found.Jobs != 2 || found.Ended+found.Live != 20 || found.Modules != 1):
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}

// TestBackupsOfCluster: one of the servers makes the backups, whichever a caller asks, and the
// drill opens all partitions. The call is one audit event. When that server is gone, another one
// knows the state.
func TestBackupsOfCluster(t *testing.T) {
	w := newSeveral(t, 2)
	w.backups = true
	servers := []*process{w.start("a"), w.start("b")}
	// A server notes the calls that it answers in a partition that it owns.
	untilCluster(t, client(t, servers[0], adminToken), "both servers own something", func(s *sdk.Cluster) bool { return len(owned(s)) == 2 })
	var plans []*sdk.BackupPlan
	for _, p := range servers {
		c := client(t, p, adminToken)
		plan := made(t, c)
		if plan.Error != "" || plan.Last == nil || plan.Drill.GetResult() != planned.Passed || plan.Drill.Units != 2 || plan.Last.Server != plan.Server {
			t.Fatalf("%v", plan)
		}
		plans = append(plans, plan)
		time.Sleep(time.Until(plan.Last.MadeAt.AsTime().Truncate(time.Second).Add(time.Second))) // the name of the next one is another
	}
	if plans[0].Server != plans[1].Server || len(plans[1].Files) != 2 {
		t.Errorf("%v\n%v", plans[0], plans[1])
	}
	maker, other := "a", servers[1]
	if plans[0].Address == w.at["b"] {
		maker, other = "b", servers[0]
	}
	c := client(t, other, adminToken)
	events := 0
	for e, err := range c.AuditEvents(within(t), sdk.AuditQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Code == "cluster.backup" {
			events++
		}
	}
	if events != 2 {
		t.Errorf("two backups have %d audit events", events)
	}
	if err := w.all[maker].stop(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	for {
		plan, err := c.Backups(ctx)
		if err == nil && plan.Server != plans[0].Server && plan.Last.GetFile() == plans[1].Last.File {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v, %v", plan, err)
		}
	}
}
