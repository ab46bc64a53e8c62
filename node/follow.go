package node

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/internal/wait"
)

// followAgain is the pause before the next request to a nameserver after one has failed.
const followAgain = 500 * time.Millisecond

// follow closes the connection to a server once the nameserver names another one. When a
// server's machine or network fails, TCP keeps its connections open for half a minute;
// but its ownership ends after seconds, and then another server can be used. While the
// nameserver names no server, or no nameserver is in reach, the connection stays. Closing
// the result closes the connection as well.
//
// The result is a [session.Attendance]: it reports whether the nameserver wants the host
// to have a session on the connection. first is the nameserver's first answer.
func follow(names grpc.ClientConnInterface, req *apiv1.WatchRequest, first *apiv1.Assignment, conn io.Closer) io.Closer {
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{Closer: conn, cancel: cancel}
	f.Tell(!first.Leave)
	f.watch.Go(func() {
		for ctx.Err() == nil {
			if movedOn(ctx, names, req, first.Address, f.Tell) {
				conn.Close() //nolint:errcheck // its users get an error
				f.Tell(true) // wakes callers that wait to use it
				return
			}
			wait.For(ctx, followAgain)
		}
	})
	return f
}

// following is a connection that is closed when the nameserver names another server.
type following struct {
	io.Closer
	session.Notice
	cancel context.CancelFunc
	watch  sync.WaitGroup
}

// Close ends the watch and the connection.
func (f *following) Close() error {
	f.cancel()
	f.watch.Wait()
	f.Closer.Close() //nolint:errcheck // it may have been given up already
	return nil
}

// movedOn returns true when the nameserver names another server than the one at address,
// and false when the watch has ended. It calls needed with whether the host should have a
// session there.
func movedOn(ctx context.Context, names grpc.ClientConnInterface, req *apiv1.WatchRequest, address string, needed func(bool)) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(names).Watch(ctx, req)
	for err == nil {
		var a *apiv1.Assignment
		if a, err = stream.Recv(); err != nil {
			break
		}
		if a.Address != "" && a.Address != address {
			return true
		}
		needed(!a.Leave)
	}
	return false
}
