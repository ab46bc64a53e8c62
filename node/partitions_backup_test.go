package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// beside starts an etcd outside the servers, and returns its URL.
func beside(t *testing.T) string {
	t.Helper()
	at := ports(t, 2)
	m, err := etcd.Start(within(t), etcd.MemberConfig{Name: "m", Dir: t.TempDir(), Client: "http://" + at[0], Peer: "http://" + at[1], NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // a test's
	return m.Client()
}

// aged raises the revisions of an etcd above those of a cluster that has just begun on
// another one, as some minutes of work do.
func aged(t *testing.T, endpoint string) {
	t.Helper()
	c, err := etcd.Connect(within(t), etcd.Config{Endpoints: []string{endpoint}, Prefix: "another/", Server: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	for i := range 2000 {
		if err := c.Note(within(t), "time", "passes", fmt.Sprint(i), false); err != nil {
			t.Fatal(err)
		}
	}
}

// placementsOf returns the partition of each app, as a server reports it.
func placementsOf(t *testing.T, p *process, apps []string) map[string]string {
	t.Helper()
	conn, ctx := dial(t, p, "a-shared-secret-of-this-test")
	at := map[string]string{}
	for _, app := range apps {
		a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: app})
		if err != nil {
			t.Fatal(err)
		}
		at[app] = a.Unit
	}
	return at
}

// TestBackupOfCluster: a backup that any server of a cluster makes has all partitions,
// whichever servers own them, with all that was acknowledged before it. A restored
// directory becomes a cluster again, with every app in its partition, and other servers
// join it.
func TestBackupOfCluster(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	w.etcd, w.partitions = beside(t), 4
	aged(t, w.etcd)
	w.key = filepath.Join(w.dir, "secret.key")
	if err := os.WriteFile(w.key, []byte("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ready, stop := w.server(0)
	one := w.works(ready)
	second, stop2 := w.server(1)
	two := w.works(second)
	w.host()
	c := client(t, one, adminToken)
	l := &life{t: t}
	l.fill(c)
	apps := []string{"default", "pay"}
	keys := map[string]string{} // the run of each app's key
	for i := range 8 {
		app := fmt.Sprint("app", i)
		apps = append(apps, app)
		if _, _, err := c.PushModule(within(t), sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Apply(within(t), &sdk.Job{App: app, Name: "hello", Handler: &sdk.Handler{Module: "greet@1"}, Input: app}); err != nil {
			t.Fatal(err)
		}
		a, err := c.Trigger(within(t), sdk.Trigger{App: app, Job: "hello", Key: "once"})
		if err != nil {
			t.Fatal(err)
		}
		keys[app] = a.RunID
	}
	// Both servers own some partitions: the one that makes the backup must fetch from the
	// other.
	conn, ctx := dial(t, one, adminToken)
	for end := within(t); ; {
		st, err := apiv1.NewMembershipClient(conn).GetCluster(ctx, &apiv1.GetClusterRequest{})
		owners := map[string]bool{}
		for _, u := range st.GetUnits() {
			owners[u.Owner] = true
		}
		if err == nil && len(st.Units) == 4 && len(owners) == 2 && !owners[""] {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-end.Done():
			t.Fatalf("the partitions are with %v, %v", owners, err)
		}
	}
	placements := placementsOf(t, one, apps)
	if n := len(slices.Compact(slices.Sorted(maps.Values(placements)))); n != 4 {
		t.Fatalf("the apps are in %d partitions: %v", n, placements)
	}
	var backups [2]bytes.Buffer
	keeper := newRecipient(t)
	for i, p := range []*process{one, two} {
		asked := client(t, p, adminToken)
		for try := 0; ; try++ {
			for _, app := range apps[2:] { // acknowledged a moment ago
				a, err := c.Trigger(within(t), sdk.Trigger{App: app, Job: "hello", Key: fmt.Sprint("late", i)})
				if err != nil {
					t.Fatal(err)
				}
				keys[fmt.Sprint(app, ":late", i)] = a.RunID
			}
			backups[i].Reset()
			var err error
			if i == 0 {
				err = backUp(within(t), asked, &backups[i])
			} else { // it is encrypted by the server that gets the other partitions
				var sealed bytes.Buffer
				sum, failed := asked.Backup(within(t), &sealed, sdk.BackupOptions{Recipients: []string{keeper.public}})
				if err = failed; err == nil {
					if sum.Units != 4 || len(sum.Keys) == 0 || bytes.Contains(sealed.Bytes(), []byte(adminToken)) {
						t.Errorf("the server says %v", sum)
					}
					_, err = backups[i].ReadFrom(keeper.opened(t, &sealed))
				}
			}
			if err == nil {
				break
			}
			if try == 20 || !errors.Is(err, sdk.ErrUnavailable) { // a partition is moving
				t.Fatal(err)
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	// The token that hosts and servers share does not give access to the state; only that
	// of servers does.
	shared, asMember := dial(t, one, "a-shared-secret-of-this-test")
	stolen, err := apiv1.NewBackupsClient(shared).FetchState(asMember, &apiv1.FetchStateRequest{Group: "main"})
	if err == nil {
		_, err = stolen.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the state of a partition with the token of hosts: %v", err)
	}
	if err := errors.Join(stop(), stop2()); err != nil {
		t.Fatal(err)
	}
	made := backups[1].Bytes()
	for i := range backups {
		res, err := archive.Check(within(t), bytes.NewReader(backups[i].Bytes()), nil)
		if err != nil || res.Units != 4 || res.Group != "main" || res.Modules < 4 {
			t.Fatalf("%d: %+v, %v", i, res, err)
		}
	}
	// The directory of a stopped server has all of it as well.
	var stopped bytes.Buffer
	if _, err := offline.Backup(within(t), w.data(0), nil, archive.KeysIncluded, &stopped); err != nil {
		t.Fatal(err)
	}
	if res, err := archive.Check(within(t), &stopped, nil); err != nil || res.Units != 4 {
		t.Errorf("%+v, %v", res, err)
	}

	if _, err := archive.Restore(within(t), bytes.NewReader(made), w.data(2), nil, nil); err != nil {
		t.Fatal(err)
	}
	err = node.Server(within(t), node.ServerConfig{Data: w.data(2), Listen: "127.0.0.1:0", Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "cluster init") {
		t.Errorf("a server alone on the partitions of a cluster: %v", err)
	}
	w.etcd, w.partitions = beside(t), 0
	other := w.grow(2)
	other.Etcd.Group = "other"
	if _, err := node.Grow(within(t), other); err == nil || !strings.Contains(err.Error(), "--group") {
		t.Errorf("as another group: %v", err)
	}
	for range 2 { // it may be repeated
		if _, err := node.Grow(within(t), w.grow(2)); err != nil {
			t.Fatal(err)
		}
	}
	ready, stop = w.server(2)
	again := w.works(ready)
	whole := func(p *process) {
		t.Helper()
		ca := client(t, p, adminToken)
		l.check(ca)
		for name, id := range keys {
			app, key, late := strings.Cut(name, ":")
			if !late {
				key = "once"
			}
			a, err := ca.Trigger(within(t), sdk.Trigger{App: app, Job: "hello", Key: key})
			if err != nil || a.RunID != id {
				t.Errorf("the key %s of %s is of %s now, and was of %s: %v", key, app, a.RunID, id, err)
				continue
			}
			if r, err := ca.Wait(within(t), app, id); err != nil || r.State != "succeeded" || r.Output != "Hello, "+app+"!\n" {
				t.Errorf("run %s of %s: %v, %v", id, app, r, err)
			}
		}
		// The host knows higher epochs from the old etcd, and connects all the same.
		for _, app := range apps[2:] {
			a, err := ca.Trigger(within(t), sdk.Trigger{App: app, Job: "hello"})
			if err != nil {
				t.Error(err)
				continue
			}
			if r, err := ca.Wait(within(t), app, a.RunID); err != nil || r.State != "succeeded" {
				t.Fatalf("a new run of %s: %v, %v", app, r, err)
			}
		}
	}
	whole(again)
	if now := placementsOf(t, again, apps); !maps.Equal(now, placements) {
		t.Errorf("the apps are in %v, and were in %v", now, placements)
	}
	// Another server joins with an empty directory, gets the state of all partitions, and
	// continues alone.
	third, _ := w.server(3)
	joined := w.works(third)
	conn, ctx = dial(t, again, adminToken)
	for end := within(t); ; {
		st, err := apiv1.NewMembershipClient(conn).GetCluster(ctx, &apiv1.GetClusterRequest{})
		stand := 0
		for _, u := range st.GetUnits() {
			if len(u.Standbys) > 0 || u.Address == joined.GRPC {
				stand++
			}
		}
		found, _ := filepath.Glob(filepath.Join(w.data(3), "units", "*", "store", "snapshots", "*.snap"))
		if err == nil && stand == 4 && len(found) >= 3 && codeIn(t, w.data(3)) == codeIn(t, w.data(2)) {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-end.Done():
			t.Fatalf("%d partitions are followed, %d were fetched: %v, %v", stand, len(found), st, err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	whole(joined)
}

// codeIn counts the modules whose code is in a data directory, in all partitions.
func codeIn(t *testing.T, dir string) (n int) {
	t.Helper()
	for _, partition := range []string{".", "units/main.1", "units/main.2", "units/main.3"} {
		m, err := modules.Open(filepath.Join(dir, partition, "modules"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := m.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			if x.Digest != "" {
				n++
			}
		}
	}
	return n
}

// TestUnitsThatDoNotFit: a backup whose partitions differ from those that it names is
// refused, even if all checksums are right.
func TestUnitsThatDoNotFit(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: filepath.Join(t.TempDir(), "a")})
	var one bytes.Buffer
	if err := backUp(within(t), client(t, p, p.Token), &one); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	info, files := filesOf(t, one.Bytes())
	type partition struct {
		Name    string `json:"name"`
		Applied uint64 `json:"applied"`
	}
	for what, c := range map[string]struct {
		partitions int
		named      []partition
		copies     []string
		want       string // "": it is accepted
	}{
		"as it should be":        {2, []partition{{"main", info.Applied}, {"main.1", info.Applied}}, []string{"main.1"}, ""},
		"no names":               {2, nil, []string{"main.1"}, "does not say"},
		"nothing of a partition": {2, []partition{{"main", info.Applied}, {"main.1", info.Applied}}, nil, "nothing of the partition"},
		"a partition too many":   {2, []partition{{"main", info.Applied}, {"main.1", info.Applied}}, []string{"main.1", "main.2"}, "does not name"},
		"named twice":            {3, []partition{{"main", info.Applied}, {"main.1", info.Applied}, {"main.1", info.Applied}}, []string{"main.1"}, "named twice"},
		"fewer than it has":      {1, []partition{{"main", info.Applied}, {"main.1", info.Applied}}, []string{"main.1"}, "names 2"},
		"another moment":         {2, []partition{{"main", info.Applied}, {"main.1", info.Applied + 1}}, []string{"main.1"}, "main.1"},
		"another first":          {2, []partition{{"main", info.Applied + 1}, {"main.1", info.Applied}}, []string{"main.1"}, "names 2"},
	} {
		var b bytes.Buffer
		info := info
		info.Units = c.partitions
		to, err := backup.NewWriter(&b, info)
		if err != nil {
			t.Fatal(err)
		}
		put := func(name string, content []byte) {
			t.Helper()
			f, err := to.Create(name)
			if err == nil {
				_, err = f.Write(content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			put(name, files[name])
			for _, u := range c.copies {
				if strings.HasPrefix(name, "store/") {
					put("units/"+u+"/"+name, files[name])
				}
			}
		}
		if c.named != nil {
			text, err := json.Marshal(map[string]any{"units": c.named})
			if err != nil {
				t.Fatal(err)
			}
			put("placement.json", text)
		}
		if _, err := to.Close(); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "to")
		_, err = archive.Restore(within(t), bytes.NewReader(b.Bytes()), dir, nil, nil)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", what, left, err)
		}
	}
	for _, text := range []string{"", "{", "null", "[]", `{"units":[]}`, `{"units":[{"name":1}]}`} {
		var b bytes.Buffer
		to, err := backup.NewWriter(&b, info)
		if err != nil {
			t.Fatal(err)
		}
		f, err := to.Create("placement.json")
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if _, cerr := to.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		if _, err := archive.Check(within(t), &b, nil); !errors.Is(err, backup.ErrDamaged) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// filesOf returns the files of a backup.
func filesOf(t *testing.T, b []byte) (backup.Info, map[string][]byte) {
	t.Helper()
	r, err := backup.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for {
		name, err := r.Next()
		if err == io.EOF {
			return r.Info(), files
		}
		if err == nil {
			files[name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
