package router_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/transport"
)

// doorOf is a server that accepts some tokens, and has something to copy.
type doorOf struct {
	apiv1.UnimplementedBackupsServer
	knows map[string]codes.Code // by token; absent: Unauthenticated
	asked []string
}

func (d *doorOf) FetchState(_ *apiv1.FetchStateRequest, stream apiv1.Backups_FetchStateServer) error {
	token := metadata.ValueFromIncomingContext(stream.Context(), "authorization")[0]
	d.asked = append(d.asked, token)
	code, ok := d.knows[token]
	if !ok {
		code = codes.Unauthenticated
	}
	if code != codes.OK {
		return status.Error(code, "no")
	}
	return stream.Send(&apiv1.BackupChunk{Data: []byte("state")})
}

// identity returns the identity of a server on this machine.
func identity(t *testing.T, token string) *transport.Identity {
	t.Helper()
	i, err := transport.NewIdentity(token, "")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestStateOfPeers: a server sends the token of servers, and to a server of an older
// version, which does not know that, the token of members. After a refusal for another
// reason it sends no other token.
func TestStateOfPeers(t *testing.T) {
	for name, c := range map[string]struct {
		knows map[string]codes.Code
		code  codes.Code
		asked int
	}{
		"of this version": {map[string]codes.Code{"Bearer ws_key": codes.OK}, codes.OK, 1},
		"older":           {map[string]codes.Code{"Bearer shared": codes.OK}, codes.OK, 2},
		"busy":            {map[string]codes.Code{"Bearer ws_key": codes.Unavailable, "Bearer shared": codes.OK}, codes.Unavailable, 1},
		"of others":       {nil, codes.Unauthenticated, 2},
	} {
		d := &doorOf{knows: c.knows}
		g := grpc.NewServer()
		apiv1.RegisterBackupsServer(g, d)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go g.Serve(ln) //nolint:errcheck // ends with Stop
		p := &router.Peers{Own: identity(t, "shared"), Key: identity(t, "ws_key")}
		err = p.State(ln.Addr().String(), func(from apiv1.BackupsClient) error {
			s, err := from.FetchState(t.Context(), &apiv1.FetchStateRequest{})
			for err == nil {
				_, err = s.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		})
		g.Stop()
		if status.Code(err) != c.code || len(d.asked) != c.asked {
			t.Errorf("%s: %v after %q", name, err, d.asked)
		}
	}
}
