package node

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/nameserver"
)

// kept is a connection that can only be closed.
type kept chan struct{}

func (k kept) Close() error {
	select {
	case <-k:
	default:
		close(k)
	}
	return nil
}

// TestFollow: a connection stays while the nameserver names its server or none, or is out
// of reach. It is closed when the nameserver names another server.
func TestFollow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var door *grpc.Server
	open := func(ln net.Listener) {
		door = grpc.NewServer()
		nameserver.New(nameserver.Config{}).Register(door)
		go door.Serve(ln) //nolint:errcheck // it is stopped
	}
	open(ln)
	defer func() { door.Stop() }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	join := func(server, address string) {
		t.Helper()
		s, err := apiv1.NewNameserverClient(conn).Join(ctx, grpc.WaitForReady(true))
		if err == nil {
			err = s.Send(&apiv1.ServerReport{Server: server, Address: address, Apps: []string{defaultAppOfHosts}})
		}
		if err == nil {
			_, err = s.Recv() // the nameserver knows the server now
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	nobody, first, ended := make(kept), make(kept), make(kept)
	req, at := &apiv1.WatchRequest{Host: "h"}, &apiv1.Assignment{Address: "a:1"}
	defer follow(conn, req, at, nobody).Close() //nolint:errcheck // a test's
	join("a", "a:1")
	defer follow(conn, req, at, first).Close() //nolint:errcheck // a test's
	closer := follow(conn, req, at, ended)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	if !is(ended) {
		t.Error("what is closed leaves its connection open")
	}
	movedOnOnce := make(chan bool)
	go func() { movedOnOnce <- movedOn(ctx, conn, req, at.Address, func(bool) {}) }()
	door.Stop()
	if <-movedOnOnce {
		t.Error("a nameserver that goes away names somebody else")
	}
	if is(first) || is(nobody) {
		t.Error("the connection was given up while its server was the one")
	}
	if ln, err = net.Listen("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	open(ln)
	join("b", "b:1")
	for _, k := range []kept{first, nobody} {
		select {
		case <-k:
		case <-ctx.Done():
			t.Fatal("another server is named, and the connection stays")
		}
	}
}

const defaultAppOfHosts = "default"

func is(k kept) bool {
	select {
	case <-k:
		return true
	default:
		return false
	}
}
