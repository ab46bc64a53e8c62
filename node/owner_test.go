package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// twoServers are two servers with one nameserver and one administrator's token.
type twoServers struct {
	t      *testing.T
	dir    string
	token  string // file of hosts
	own    string // file of servers; "": they use that of hosts
	names  *process
	listen string // of the nameserver
	all    []*process
}

const adminToken = "ww_an-administrators-token-of-this-test"

const serverToken = "a-token-of-the-servers-of-this-test"

// newTwoServers starts them; passing says that they have a token of their own, and so
// pass calls on to each other.
func newTwoServers(t *testing.T, passing bool) *twoServers {
	t.Helper()
	w := &twoServers{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	w.token = filepath.Join(w.dir, "token")
	w.write(w.token, memberToken+"\n")
	if passing {
		w.own = filepath.Join(w.dir, "server-token")
		w.write(w.own, serverToken+"\n")
	}
	w.startNames()
	for _, name := range []string{"one", "two"} {
		data := filepath.Join(w.dir, name)
		w.write(filepath.Join(data, "token"), adminToken+"\n")
		w.all = append(w.all, launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Server(ctx, node.ServerConfig{Data: data, Listen: "127.0.0.1:0", Nameserver: w.names.GRPC, TokenFile: w.token, ServerTokenFile: w.own, Ready: ready})
		}))
	}
	return w
}

func (w *twoServers) write(path, text string) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *twoServers) startNames() {
	w.t.Helper()
	w.names = launch(w.t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Nameserver(ctx, node.NameserverConfig{Listen: w.listen, TokenFile: w.token, ServerTokenFile: w.own, Ready: ready})
	})
	w.listen = w.names.GRPC
}

// split returns the server that owns an app, and the other one.
func (w *twoServers) split(app string) (owner, other *process) {
	w.t.Helper()
	conn, ctx := dial(w.t, w.names, "a-shared-secret-of-this-test")
	for {
		a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: app})
		if status.Code(err) == codes.Unavailable && ctx.Err() == nil {
			continue // nobody has joined yet
		}
		if err != nil {
			w.t.Fatal(err)
		}
		i := slices.IndexFunc(w.all, func(p *process) bool { return p.GRPC == a.Address })
		if i < 0 {
			w.t.Fatalf("%v is none of them", a)
		}
		return w.all[i], w.all[1-i]
	}
}

func names(t *testing.T, p *process) (apps []string) {
	t.Helper()
	conn, ctx := dial(t, p, adminToken)
	list, err := apiv1.NewAppsClient(conn).ListApps(ctx, &apiv1.ListAppsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Apps {
		apps = append(apps, a.Name)
	}
	return apps
}

// refusedBy checks that a server refused an app, and named the other one.
func refusedBy(t *testing.T, what string, err error, owner *process) {
	t.Helper()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), owner.GRPC) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok && a.Address == owner.GRPC {
			return
		}
	}
	t.Errorf("%s: the error says nothing to programs: %v", what, status.Convert(err).Details())
}

// TestAnotherServersApp: a server does nothing with an app that another one
// owns, and says whose it is when the servers have no token to pass calls on with.
func TestAnotherServersApp(t *testing.T) {
	t.Parallel()
	w := newTwoServers(t, false)
	owner, other := w.split("pay")
	conn, ctx := dial(t, other, adminToken)
	job := greetJob()
	job.App = "pay"
	_, err := apiv1.NewJobsClient(conn).ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: job})
	refusedBy(t, "apply", err, owner)
	_, err = apiv1.NewJobsClient(conn).ListJobs(ctx, &apiv1.ListJobsRequest{App: "pay"})
	refusedBy(t, "list", err, owner)
	_, err = apiv1.NewAppsClient(conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "pay"}})
	refusedBy(t, "put app", err, owner)
	_, err = apiv1.NewCalendarsClient(conn).PutCalendar(ctx, &apiv1.PutCalendarRequest{Calendar: &apiv1.Calendar{App: "pay", Name: "c"}})
	refusedBy(t, "put calendar", err, owner)
	watch, err := apiv1.NewRunsClient(conn).WatchRun(ctx, &apiv1.WatchRunRequest{App: "pay", Id: "x"})
	if err == nil {
		_, err = watch.Recv()
	}
	refusedBy(t, "watch", err, owner)
	upload, err := apiv1.NewModulesClient(conn).PushModule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head := &apiv1.PushModuleRequest_Head{App: "pay", Name: "greet", Version: "1"}
	if err := upload.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}); err != nil {
		t.Fatal(err)
	}
	_, err = upload.CloseAndRecv()
	refusedBy(t, "push", err, owner)
	for _, ack := range []string{"applied", "accepted"} {
		produce, err := apiv1.NewProducerClient(conn).Produce(ctx)
		if err != nil {
			t.Fatal(err)
		}
		mine := &apiv1.Command{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: "pay", Name: "x"}}}
		if err := produce.Send(&apiv1.ProduceRequest{Number: 1, Commands: []*apiv1.Command{mine}, Ack: ack}); err != nil {
			t.Fatal(err)
		}
		_, err = produce.Recv()
		refusedBy(t, "produce, "+ack, err, owner)
	}
	if apps := names(t, other); slices.Contains(apps, "pay") {
		t.Errorf("the other server has %v", apps)
	}
}

// TestCallsReachTheOwner: a client that knows only the wrong server has every kind
// of call answered by the right one, to which it never connects.
func TestCallsReachTheOwner(t *testing.T) {
	t.Parallel()
	w := newTwoServers(t, true)
	const app = "pay"
	owner, other := w.split(app)
	job := greetJob()
	job.App = app
	run := ""
	for _, c := range []struct {
		name string
		call func(ctx context.Context, c *sdk.Client) error
	}{
		{"upload", func(ctx context.Context, c *sdk.Client) error {
			_, _, err := c.PushModule(ctx, sdk.Upload{App: app, Name: "greet", Version: "1", Code: greet.Module})
			return err
		}},
		{"a message that names no app by itself", func(ctx context.Context, c *sdk.Client) error {
			_, err := c.DryRun(ctx, job)
			return err
		}},
		{"command", func(ctx context.Context, c *sdk.Client) error {
			a, err := c.Apply(ctx, job)
			if err == nil && a.Result != sdk.Created {
				err = errors.New(string(a.Result))
			}
			return err
		}},
		{"many commands", func(ctx context.Context, c *sdk.Client) error {
			for i := range 600 {
				c.TriggerAsync(ctx, sdk.Trigger{App: app, Job: job.Name, Key: fmt.Sprint("k", i)}).Then(func(a sdk.Answer, err error) {
					if err != nil || a.Result != sdk.Accepted {
						t.Errorf("trigger %d: %v, %v", i, a, err)
					}
				})
			}
			return c.Flush(ctx)
		}},
		{"call", func(ctx context.Context, c *sdk.Client) error {
			r, err := c.TriggerRun(ctx, sdk.Trigger{App: app, Job: job.Name})
			run = r.GetId()
			return err
		}},
		{"stream", func(ctx context.Context, c *sdk.Client) error {
			for r, err := range c.Watch(ctx, app, run) {
				if err == nil && r.Id != run {
					err = fmt.Errorf("watched %s", r.Id)
				}
				return err
			}
			return errors.New("nothing was watched")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			client, err := sdk.Dial(ctx, other.URL, sdk.Options{Token: adminToken, Dialer: only(other.GRPC)})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close() //nolint:errcheck // every answer has come
			if err := c.call(ctx, client); err != nil {
				t.Fatal(err)
			}
		})
	}
	if got := names(t, owner); !slices.Contains(got, app) {
		t.Errorf("the owner has %v", got)
	}
	if got := names(t, other); slices.Contains(got, app) {
		t.Errorf("the other server has %v", got)
	}
}

// only connects to one address.
func only(at string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if address != at {
			return nil, fmt.Errorf("%s is not the address that the client was given", address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

// TestOwnersOutliveTheNameserver: what a server holds stays its own when the
// nameserver begins anew, and goes on while that is away.
func TestOwnersOutliveTheNameserver(t *testing.T) {
	t.Parallel()
	w := newTwoServers(t, false)
	owner, other := w.split("pay")
	conn, ctx := dial(t, owner, adminToken)
	if _, err := apiv1.NewAppsClient(conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "pay"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.names.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := apiv1.NewJobsClient(conn).ListJobs(ctx, &apiv1.ListJobsRequest{App: "pay"}); err != nil {
		t.Errorf("the owner, without a nameserver: %v", err)
	}
	wrong, _ := dial(t, other, adminToken)
	_, err := apiv1.NewJobsClient(wrong).ListJobs(ctx, &apiv1.ListJobsRequest{App: "new"})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "nameserver") {
		t.Errorf("an app that nobody can place: %v", err)
	}
	w.startNames()
	again, _ := w.split("pay")
	if again != owner {
		t.Error("the new nameserver names the other server")
	}
	_, err = apiv1.NewJobsClient(wrong).ListJobs(ctx, &apiv1.ListJobsRequest{App: "pay"})
	refusedBy(t, "after that", err, owner)
}
