package node

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// followAgain is the pause before a nameserver that was lost is asked again.
const followAgain = 500 * time.Millisecond

// follow gives up the connection to a server once the nameserver names another
// one. A server that is lost without a word, with its machine or its network,
// keeps its connections open for as long as TCP hopes, half a minute; its
// ownership ends after seconds, and then there is somebody to go to. While
// nobody is named, or no nameserver is in reach, the connection stays. Closing
// what is returned closes the connection as well.
func follow(names grpc.ClientConnInterface, req *apiv1.WatchRequest, address string, conn io.Closer) io.Closer {
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{Closer: conn, cancel: cancel}
	f.watch.Go(func() {
		for ctx.Err() == nil {
			if movedOn(ctx, names, req, address) {
				conn.Close() //nolint:errcheck // whoever uses it is told
				return
			}
			pause(ctx, followAgain)
		}
	})
	return f
}

// following is a connection that ends when another server is named.
type following struct {
	io.Closer
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

// movedOn returns true when the nameserver names another server than the one at
// address, and false when it cannot say any more.
func movedOn(ctx context.Context, names grpc.ClientConnInterface, req *apiv1.WatchRequest, address string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(names).Watch(ctx, req)
	for err == nil {
		var a *apiv1.Assignment
		if a, err = stream.Recv(); err == nil && a.Address != "" && a.Address != address {
			return true
		}
	}
	return false
}
