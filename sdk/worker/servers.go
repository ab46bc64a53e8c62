package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// patience is how long a server may take to answer before the worker tries the next.
const patience = 5 * time.Second

// servers finds the server that serves the worker.
type servers struct {
	opt  sdk.Options
	apps []string
	id   string
	urls []string

	mu sync.Mutex
	at int // index of the server that is tried first
}

// unitHeader names the partition of a session for the servers of a cluster.
const unitHeader = "wheelwork-unit"

func newServers(opt Options) (*servers, error) {
	s := &servers{opt: opt.sdk(), apps: opt.Apps}
	for url := range strings.SplitSeq(opt.Address, ",") {
		url = strings.TrimSpace(url)
		conn, err := s.opt.Conn(url) // otherwise the worker would retry an invalid address forever
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

// connect asks the servers in turn which server serves the worker, and returns a
// connection to that server.
func (s *servers) connect(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
	return s.connectTo(ctx, "")
}

// connectUnit is connect for the owner of a partition.
func (s *servers) connectUnit(ctx context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error) {
	conn, closer, err := s.connectTo(ctx, unit)
	return ofUnit{conn, unit}, closer, err
}

func (s *servers) connectTo(ctx context.Context, unit string) (to grpc.ClientConnInterface, closer io.Closer, err error) {
	err = s.each(func(url string) error {
		conn, at, a, err := s.follow(ctx, url, unit)
		if err == nil {
			to, closer = conn, s.watch(conn, unit, at, a)
		}
		return err
	})
	return to, closer, err
}

// each tries the servers in turn, starting with the one that answered last.
func (s *servers) each(try func(url string) error) error {
	var errs []error
	s.mu.Lock()
	first := s.at
	s.mu.Unlock()
	for i := range s.urls {
		at := (first + i) % len(s.urls)
		err := try(s.urls[at])
		if err == nil {
			s.mu.Lock()
			s.at = at
			s.mu.Unlock()
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.urls[at], sdk.ErrorOf(err)))
	}
	return errors.Join(errs...)
}

// units asks the servers in turn for the partitions of their cluster. Without a cluster
// the list is empty.
func (s *servers) units(ctx context.Context) (units []string, err error) {
	err = s.each(func(url string) error {
		conn, err := s.opt.Conn(url)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // the answer has come
		a, err := s.assigned(ctx, conn, "")
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		units = a.GetUnits()
		return err
	})
	return units, err
}

// ofUnit is a connection whose calls are all for one partition.
type ofUnit struct {
	grpc.ClientConnInterface
	unit string
}

// Invoke implements [grpc.ClientConnInterface].
func (c ofUnit) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(metadata.AppendToOutgoingContext(ctx, unitHeader, c.unit), method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface].
func (c ofUnit) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(metadata.AppendToOutgoingContext(ctx, unitHeader, c.unit), desc, method, opts...)
}

// follow asks the server at url which server serves the worker. If that server does not
// know, or the named server cannot be reached, follow uses the asked server itself: the
// worker can more likely reach the address that it was given than one that servers use
// among themselves. It returns the URL of the connection and the server's answer; nil: it
// is not a nameserver.
func (s *servers) follow(ctx context.Context, url, unit string) (_ *grpc.ClientConn, at string, a *apiv1.Assignment, err error) {
	conn, err := s.opt.Conn(url)
	if err != nil {
		return nil, "", nil, err
	}
	a, err = s.assigned(ctx, conn, unit)
	if status.Code(err) == codes.Unimplemented {
		return conn, url, nil, nil
	}
	if err != nil {
		return nil, "", nil, errors.Join(err, conn.Close())
	}
	scheme, own, _ := strings.Cut(strings.TrimSuffix(url, "/"), "://")
	if a.Address == own {
		return conn, url, a, nil
	}
	at = scheme + "://" + a.Address
	to, err := s.opt.Conn(at)
	if err != nil {
		return conn, url, a, nil
	}
	if !reach(ctx, to) {
		return conn, url, a, to.Close()
	}
	return to, at, a, conn.Close()
}

// assigned waits for a limited time until the nameserver has a server for the worker.
func (s *servers) assigned(ctx context.Context, conn *grpc.ClientConn, unit string) (*apiv1.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(conn).Watch(ctx, &apiv1.WatchRequest{Host: s.id, Apps: s.apps, Unit: unit})
	if err != nil {
		return nil, err
	}
	for {
		a, err := stream.Recv()
		switch {
		case err != nil:
			return nil, err
		case a.Address != "":
			return a, nil
		}
	}
}

// reach connects, and reports whether a server answered.
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
