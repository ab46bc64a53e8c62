package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// patience is how long a server may take to answer before the next is tried.
const patience = 5 * time.Second

// servers finds the server that serves the worker. Its connect is called for
// one session after the other.
type servers struct {
	opt  sdk.Options
	apps []string
	id   string
	urls []string
	at   int // of the one that is tried first
}

func newServers(opt Options) (*servers, error) {
	s := &servers{opt: opt.sdk(), apps: opt.Apps}
	for url := range strings.SplitSeq(opt.Address, ",") {
		url = strings.TrimSpace(url)
		conn, err := s.opt.Conn(url) // a mistake in it would otherwise be tried for ever
		if err != nil {
			return nil, err
		}
		if err := conn.Close(); err != nil {
			return nil, err
		}
		s.urls = append(s.urls, url)
	}
	return s, nil
}

// connect asks the servers in turn who serves the worker, and returns a
// connection to that one.
func (s *servers) connect(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
	var errs []error
	for range s.urls {
		conn, err := s.follow(ctx, s.urls[s.at])
		if err == nil {
			return conn, conn, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.urls[s.at], err))
		s.at = (s.at + 1) % len(s.urls)
	}
	return nil, nil, errors.Join(errs...)
}

// follow asks at url which server serves the worker. One that does not know is
// it itself, and so is one whose answer cannot be reached: the address that the
// worker was given is more likely to lead somewhere than one that servers use
// among themselves.
func (s *servers) follow(ctx context.Context, url string) (*grpc.ClientConn, error) {
	conn, err := s.opt.Conn(url)
	if err != nil {
		return nil, err
	}
	address, err := s.assigned(ctx, conn)
	if status.Code(err) == codes.Unimplemented {
		return conn, nil
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	scheme, own, _ := strings.Cut(strings.TrimSuffix(url, "/"), "://")
	if address == own {
		return conn, nil
	}
	to, err := s.opt.Conn(scheme + "://" + address)
	if err != nil {
		return conn, nil
	}
	if !reach(ctx, to) {
		return conn, to.Close()
	}
	return to, conn.Close()
}

// assigned waits until there is a server for the worker, and not for long.
func (s *servers) assigned(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(conn).Watch(ctx, &apiv1.WatchRequest{Host: s.id, Apps: s.apps})
	if err != nil {
		return "", err
	}
	for {
		a, err := stream.Recv()
		switch {
		case err != nil:
			return "", err
		case a.Address != "":
			return a.Address, nil
		}
	}
}

// reach connects, and reports whether somebody is there.
func reach(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn.Connect()
	for {
		at := conn.GetState()
		switch {
		case at == connectivity.Ready:
			return true
		case at == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, at):
			return false
		}
	}
}
