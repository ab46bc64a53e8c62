package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestServersSpeakForCallers makes calls with the token of servers, like a server that
// passes them on: each call has the permissions of the role that it names, and no others.
func TestServersSpeakForCallers(t *testing.T) {
	t.Parallel()
	own := writeToken(t, t.TempDir(), "own")
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", ServerTokenFile: own, Ready: ready})
	})
	for token, cases := range map[string]map[string]codes.Code{
		strings.TrimSpace(string(text)): {"admin": codes.OK, "worker": codes.PermissionDenied, "host": codes.PermissionDenied, "server": codes.PermissionDenied, "root": codes.PermissionDenied, "": codes.PermissionDenied, "admin,admin": codes.PermissionDenied},
		p.Token:                         {"admin": codes.PermissionDenied, "server": codes.PermissionDenied},
		p.HostToken:                     {"admin": codes.PermissionDenied},
		"a-token-that-nothing-knows":    {"admin": codes.Unauthenticated},
	} {
		for role, want := range cases {
			conn, ctx := dial(t, p, token)
			for r := range strings.SplitSeq(role, ",") {
				ctx = metadata.AppendToOutgoingContext(ctx, "wheelwork-acting", r)
			}
			_, err := apiv1.NewAppsClient(conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "shop"}})
			if status.Code(err) != want {
				t.Errorf("%.8s… as %q: %v, want %v", token, role, err, want)
			}
		}
	}
}

// TestServersOfAClusterWithTokensOfTheirOwn: each server of a cluster has its own
// administrator's token. A client that knows one server reaches the apps that the other
// owns.
func TestServersOfAClusterWithTokensOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2)
	const another = "ww_another-administrators-token"
	a := w.start("a")
	data := filepath.Join(w.dir, "b")
	if err := errors.Join(os.MkdirAll(data, 0o700), os.WriteFile(filepath.Join(data, "token"), []byte(another+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w.at["b"] = testkit.FreeAddress(t)
	b := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{
			Data: data, Listen: w.at["b"], TokenFile: w.token, Ready: ready,
			Etcd: node.EtcdConfig{Endpoints: []string{w.etcd.Client()}, Units: 2, Settle: time.Second}, Placement: node.Placement{Capacity: 3},
		})
	})
	w.until(w.client("a"), "both servers own a partition", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 1 && n[w.at["b"]] == 1 })
	for p, token := range map[*process]string{a: adminToken, b: another} {
		c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token, Dialer: only(p.GRPC)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // every answer has come
		for _, app := range []string{"one", "two"} {
			note := "grüße von " + p.GRPC
			if _, err := c.PutApp(sdk.WithNote(t.Context(), note), &sdk.App{Name: app, Description: "of " + p.GRPC}); err != nil {
				t.Errorf("the app %s at %s: %v", app, p.GRPC, err)
			}
			revs, err := c.Revisions(t.Context(), app, sdk.KindApp, app)
			if err != nil || len(revs) == 0 || revs[0].GetAuthor() != "admin" || revs[0].GetCause() != "sdk" || revs[0].GetNote() != note {
				t.Errorf("the revisions of app %s at %s: %v, %v", app, p.GRPC, revs, err)
			}
		}
		if apps, err := c.Apps(t.Context()); err != nil || len(apps) != 2 {
			t.Errorf("the apps at %s: %v, %v", p.GRPC, apps, err)
		}
	}
}

// TestStreamForTwoServers: one stream of commands is about apps of two servers. Commands
// for the second server are not applied; the producer is told to connect again, and gets
// no address.
func TestStreamForTwoServers(t *testing.T) {
	t.Parallel()
	w, theirs := twoOwners(t)
	mine := w.appOf("a", "a")
	conn, ctx := dial(t, w.all["a"], adminToken)
	for _, order := range [][2]string{{mine, theirs}, {theirs, mine}} {
		s, err := apiv1.NewProducerClient(conn).Produce(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send := func(app string) error {
			c := &apiv1.Command{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: app, Name: "x"}}}
			if err := s.Send(&apiv1.ProduceRequest{Number: 1, Commands: []*apiv1.Command{c}}); err != nil {
				t.Fatal(err)
			}
			_, err := s.Recv()
			return err
		}
		if err := send(order[0]); err != nil {
			t.Errorf("%v, the first: %v", order, err)
		}
		err = send(order[1])
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%v, the second: %v", order, err)
		}
		for _, d := range status.Convert(err).Details() {
			if a, ok := d.(*apiv1.Assignment); !ok || a.Address != "" {
				t.Errorf("%v: the producer is told %v", order, d)
			}
		}
	}
}
