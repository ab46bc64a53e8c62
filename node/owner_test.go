package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const adminToken = "ww_an-administrators-token-of-this-test"

// twoOwners starts two servers of one cluster, each of which owns a partition, and
// returns an app of the second one.
func twoOwners(t *testing.T) (w *several, app string) {
	t.Helper()
	w = newSeveral(t, 2, "a", "b")
	w.until(w.client("a"), "both servers own a partition", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 1 && n[w.at["b"]] == 1 })
	return w, w.appOf("b", "a")
}

// appOf makes apps at a server until one of them belongs to the server owner.
func (w *several) appOf(owner, at string) string {
	w.t.Helper()
	c := w.client(at)
	conn, ctx := dial(w.t, w.all[at], adminToken)
	for i := range 20 {
		app := fmt.Sprint("app", i)
		if _, err := c.PutApp(w.t.Context(), &sdk.App{Name: app}); err != nil {
			w.t.Fatal(err)
		}
		a, err := apiv1.NewNameserverClient(conn).Route(ctx, &apiv1.RouteRequest{App: app})
		if err != nil {
			w.t.Fatal(err)
		}
		if a.Address == w.at[owner] {
			return app
		}
	}
	w.t.Fatalf("none of 20 apps is at the server %s", owner)
	return ""
}

// TestCallsReachTheOwner: a client that knows only the wrong server gets every kind of
// call answered by the right one, to which it never connects.
func TestCallsReachTheOwner(t *testing.T) {
	t.Parallel()
	w, app := twoOwners(t)
	other := w.all["a"]
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
}

// only returns a dialer that connects to one address alone.
func only(at string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if address != at {
			return nil, fmt.Errorf("%s is not the address that the client was given", address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}
