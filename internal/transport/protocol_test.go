package transport

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wheelworkhq/wheelwork/access"
)

// speak starts a server and calls it with one unary call and one stream. A nil protocol
// means a process of a version without the protocol header.
func speak(t *testing.T, server, caller *protocol, header ...string) (chose string, once, stream error) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	var opts []grpc.ServerOption
	if server != nil {
		opts = append(opts, grpc.ChainUnaryInterceptor(server.unary), grpc.ChainStreamInterceptor(server.stream))
	}
	g := grpc.NewServer(opts...)
	healthv1.RegisterHealthServer(g, health.NewServer())
	go g.Serve(lis) //nolint:errcheck // ends with Stop
	defer g.Stop()
	var dial []grpc.DialOption
	if caller != nil {
		dial = caller.DialOptions()
	}
	conn, err := grpc.NewClient("passthrough:x", append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	ctx := t.Context()
	for _, h := range header {
		ctx = metadata.AppendToOutgoingContext(ctx, protocolHeader, h)
	}
	var md metadata.MD
	_, once = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&md))
	chose = strings.Join(md.Get(protocolHeader), ",")
	s, stream := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if stream == nil {
		_, stream = s.Recv()
	}
	return chose, once, stream
}

// TestProtocols: processes of neighbouring versions understand each other, in whatever
// order they are updated. Others get an error with an instruction.
func TestProtocols(t *testing.T) {
	p := func(oldest, newest int) *protocol { return &protocol{oldest, newest} }
	for _, c := range []struct {
		name           string
		server, caller *protocol
		chose, refused string
	}{
		{"the same", p(1, 1), p(1, 1), "1", ""},
		{"a newer caller", p(1, 1), p(1, 2), "1", ""},
		{"a newer server", p(1, 2), p(1, 1), "1", ""},
		{"both newer", p(1, 2), p(1, 2), "2", ""},
		{"neighbours", p(1, 2), p(2, 3), "2", ""},
		{"neighbours, the other way round", p(2, 3), p(1, 2), "2", ""},
		{"a caller that is too new", p(1, 1), p(2, 3), "", "bring this server's program"},
		{"a server that is too new", p(2, 3), p(1, 1), "", "bring the caller's program"},
		{"a caller of before", p(1, 2), nil, "", ""},
		{"a caller of before, for whom it is too new", p(2, 3), nil, "", "bring the caller's program"},
		{"a server of before", nil, p(1, 2), "", ""},
		{"a server of before that is too old", nil, p(2, 3), "", "bring the server's program"},
	} {
		chose, once, stream := speak(t, c.server, c.caller)
		for _, err := range []error{once, stream} {
			if c.refused == "" && err != nil || c.refused != "" && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if chose != c.chose {
			t.Errorf("%s: they speak %q, want %q", c.name, chose, c.chose)
		}
	}
	for _, bad := range []string{"", "1", "2-1", "0-1", "a-b", "1-1-1", "-", "99999999999999999999-1"} {
		if _, once, stream := speak(t, &Spoken, nil, bad); status.Code(once) != codes.InvalidArgument || status.Code(stream) != codes.InvalidArgument {
			t.Errorf("header %q: %v, %v", bad, once, stream)
		}
	}
	if _, once, _ := speak(t, &Spoken, nil, "1-1", "1-1"); status.Code(once) != codes.InvalidArgument {
		t.Errorf("two headers: %v", once)
	}
	// A server that chooses a protocol which was not offered.
	for _, bad := range []string{"2", "x"} {
		if err := Spoken.chosen(metadata.Pairs(protocolHeader, bad)); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("an answer %q: %v", bad, err)
		}
	}
}

// TestServerSpeaks: the real server and the real client agree, and a process of a version
// that is too new is refused.
func TestServerSpeaks(t *testing.T) {
	d := NewServer(access.New(), Limits{}, slog.New(slog.DiscardHandler))
	ln, err := Listen("127.0.0.1:0", "", "", nil, false, Limits{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(ln, nil) }()
	conn, err := Dial(ln.Addr().String(), "token", "")
	if err != nil {
		t.Fatal(err)
	}
	var md metadata.MD
	_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.Header(&md))
	if err != nil || strings.Join(md.Get(protocolHeader), ",") != "1" {
		t.Errorf("%v, they speak %v", err, md)
	}
	future, err := d.Dial((protocol{7, 8}).DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = healthv1.NewHealthClient(future).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "protocol 7 to 8") {
		t.Errorf("from the future: %v", err)
	}
	conn.Close()   //nolint:errcheck // a test's
	future.Close() //nolint:errcheck // a test's
	d.Close(time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServedMethodsHavePermissions checks the methods that every listener serves besides
// those of the API: the guard refuses one without a permission for every caller.
func TestServedMethodsHavePermissions(t *testing.T) {
	g := access.New()
	d := NewServer(g, Limits{}, slog.New(slog.DiscardHandler))
	n := 0
	for name, service := range d.GRPC.GetServiceInfo() {
		for _, m := range service.Methods {
			n++
			switch method := "/" + name + "/" + m.Name; {
			case method == "/grpc.health.v1.Health/List": // refused: a server has one service
			case g.Permission(method) == "":
				t.Errorf("%s has no permission: add it to access.New", method)
			case strings.HasPrefix(name, "grpc.reflection.") && g.Permission(method) == access.Public:
				t.Errorf("%s needs no token", method)
			}
		}
	}
	if n == 0 {
		t.Error("a listener serves no method")
	}
}
