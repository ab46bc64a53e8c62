package console

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// clusterPages returns the addresses of the pages of the cluster, with texts that each must contain.
func clusterPages() map[string][]string {
	return map[string][]string{
		"/cluster/servers/srv-b/drain":   {"Drain the server srv-b?"},
		"/cluster/servers/srv-a/undrain": {"End the draining of srv-a?"},
		"/cluster/units/main.2/move":     {"Move the unit main.2?", `<option value="srv-b">`},
		"/cluster/units/main.1/move":     {"No other server can own it"},
		"/cluster/split":                 {"all units (3)", "<option>billing</option>"},
		"/cluster/apps/billing/merge":    {"Merge the app billing?"},
		"/cluster/backup":                {"Make a backup in /mnt/&lt;backups&gt; now?"},
		"/cluster":                       {"/mnt/&lt;backups&gt;", "wheelwork-20260801T023000Z.wwb", "12 jobs, 3 live runs, 456 ended runs, 2 modules", `href="/cluster/backup"`},
	}
}

// changeMembers changes the cluster of the fake and returns it.
func (f *fakeAPI) changeMembers(change func(*apiv1.ClusterStatus) error) (*apiv1.ClusterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := proto.CloneOf(f.members)
	if err := change(next); err != nil {
		return nil, err
	}
	f.members = next
	return next, nil
}

func (f *fakeAPI) serverState(id, state string) (*apiv1.ClusterStatus, error) {
	return f.changeMembers(func(c *apiv1.ClusterStatus) error {
		up := 0
		for _, m := range c.Servers {
			if m.Id == id {
				m.State = state
			}
			if m.State == "up" {
				up++
			}
		}
		if up == 0 {
			return status.Errorf(codes.FailedPrecondition, "the server %s is the only one that may own anything", id)
		}
		return nil
	})
}

func (f *fakeAPI) DrainServer(_ context.Context, r *apiv1.DrainServerRequest) (*apiv1.ClusterStatus, error) {
	return f.serverState(r.Server, "draining")
}

func (f *fakeAPI) UndrainServer(_ context.Context, r *apiv1.UndrainServerRequest) (*apiv1.ClusterStatus, error) {
	return f.serverState(r.Server, "up")
}

func (f *fakeAPI) MoveUnit(_ context.Context, r *apiv1.MoveUnitRequest) (*apiv1.ClusterStatus, error) {
	return f.changeMembers(func(c *apiv1.ClusterStatus) error {
		for _, u := range c.Units {
			if u.Name == r.Unit {
				u.To, u.State = r.Server, "moving"
				return nil
			}
		}
		return status.Errorf(codes.NotFound, "the cluster has no partition %q", r.Unit)
	})
}

func (f *fakeAPI) SplitApp(_ context.Context, r *apiv1.SplitAppRequest) (*apiv1.ClusterStatus, error) {
	return f.changeMembers(func(c *apiv1.ClusterStatus) error {
		if int(r.Units) > len(c.Units) {
			return status.Errorf(codes.InvalidArgument, "units is %d: the cluster has %d", r.Units, len(c.Units))
		}
		c.Split = []*apiv1.SplitApp{{App: r.App, ByHand: !r.Auto, Shares: []*apiv1.AppShare{{Unit: "main", Slots: 16, Wanted: 8}, {Unit: "main.1", Wanted: 8}}}}
		return nil
	})
}

func (f *fakeAPI) MergeApp(context.Context, *apiv1.MergeAppRequest) (*apiv1.ClusterStatus, error) {
	return f.changeMembers(func(c *apiv1.ClusterStatus) error { c.Split = nil; return nil })
}

// TestClusterChanges makes each change and checks its call.
func TestClusterChanges(t *testing.T) {
	for name, c := range map[string]struct {
		path, form string
		want       proto.Message
		says       string
	}{
		"undrain": {"/cluster/servers/srv-a/undrain", "", &apiv1.UndrainServerRequest{Server: "srv-a"}, "The server can own units again: srv-a"},
		"move":    {"/cluster/units/main.2/move", "server=srv-b", &apiv1.MoveUnitRequest{Unit: "main.2", Server: "srv-b"}, "It moves: main.2 → srv-b"},
		"all":     {"/cluster/split", "name=shop&how=all&units=2", &apiv1.SplitAppRequest{App: "shop"}, "The jobs of the app move: shop"},
		"some":    {"/cluster/split", "name=shop&how=some&units=2", &apiv1.SplitAppRequest{App: "shop", Units: 2}, "main.1: 0 of 16, wanted 8"},
		"auto":    {"/cluster/split", "name=shop&how=auto", &apiv1.SplitAppRequest{App: "shop", Auto: true}, "the balancer"},
		"merge":   {"/cluster/apps/shop/merge", "", &apiv1.MergeAppRequest{App: "shop"}, "The jobs of the app move back: shop"},
		"back up": {"/cluster/backup", "", &apiv1.RunBackupRequest{}, "A backup is being made."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, newFake().populate()).signIn(t)
			resp, body := s.post(t, c.path, c.form)
			if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/cluster" {
				t.Fatalf("%s to %q\n%s", resp.Status, resp.Header.Get("Location"), body)
			}
			found := false
			for _, m := range s.fake.asked {
				found = found || proto.Equal(m, c.want)
			}
			if !found {
				t.Errorf("there was no call %v", c.want)
			}
			_, body = s.do(t, "GET", "/cluster", nil)
			if !strings.Contains(body, c.says) {
				t.Errorf("the page does not hold %q", c.says)
			}
			checkPage(t, body)
		})
	}
}

func TestClusterChangesAreRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, c := range []struct{ path, form, want string }{
		{"/cluster/servers/srv-b/drain", "", "the only one that may own anything"},
		{"/cluster/units/none/move", "server=srv-b", "the cluster has no partition"},
		{"/cluster/split", "name=shop&how=some&units=9", "units is 9: the cluster has 3"},
		{"/cluster/split", "name=shop&how=some&units=one", "is not a number of partitions"},
		{"/cluster/split", "name=shop", "is not all, some or auto"},
	} {
		resp, body := s.post(t, c.path, c.form)
		if resp.StatusCode != http.StatusConflict || !strings.Contains(body, c.want) || !strings.Contains(body, `hx-get="/cluster"`) {
			t.Errorf("%s: %s, want %q\n%s", c.path, resp.Status, c.want, body)
		}
		checkPage(t, body)
	}
	for _, path := range []string{"/cluster/servers/none/drain", "/cluster/units/none/move"} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// testCluster drains, moves and splits with the keyboard alone, on a narrow screen.
func testCluster(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/cluster")
	press(`a[href="/cluster/servers/srv-a/undrain"]`, "End the draining of srv-a?")
	press(`main form button`, "The server can own units again: srv-a")
	press(`a[href="/cluster/servers/srv-b/drain"]`, "Drain the server srv-b?")
	press(`main form button`, "The server gives its units away: srv-b")
	press(`a[href="/cluster/units/main.2/move"]`, "Move the unit main.2?")
	press(`main form button`, "It moves: main.2 → srv-a")
	press(`a[href="/cluster/split"]`, "Number of units")
	press(`main form button`, "The jobs of the app move: default")
	press(`a[href="/cluster/apps/default/merge"]`, "Merge the app default?")
	press(`main form button`, "The jobs of the app move back: default")
}
