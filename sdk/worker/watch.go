package worker

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// watchAgain is the pause before another server is asked who serves the worker.
const watchAgain = 500 * time.Millisecond

// watch gives up the connection to a server once another server knows of a newer
// one in its place. One that is lost without a word, with its machine or its
// network, keeps its connections open for as long as TCP hopes, half a minute; its
// ownership ends after seconds. at is the server's own URL, which is not asked; a
// names it. Closing what is returned closes the connection as well.
func (s *servers) watch(conn io.Closer, unit, at string, a *apiv1.Assignment) io.Closer {
	others := slices.DeleteFunc(slices.Clone(s.urls), func(url string) bool { return url == at })
	if a == nil || len(others) == 0 {
		return conn
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{conn: conn, cancel: cancel}
	w.ends.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if s.newer(ctx, others[i%len(others)], unit, a) {
				conn.Close() //nolint:errcheck // whoever uses it is told
				return
			}
			select {
			case <-time.After(watchAgain):
			case <-ctx.Done():
			}
		}
	})
	return w
}

// watching is a connection that ends when there is somebody newer to go to.
type watching struct {
	conn   io.Closer
	cancel context.CancelFunc
	ends   sync.WaitGroup
}

// Close ends the watch and the connection.
func (w *watching) Close() error {
	w.cancel()
	w.ends.Wait()
	w.conn.Close() //nolint:errcheck // it may have been given up already
	return nil
}

// newer returns true when the server at url names a later one than a, and false
// when it cannot say any more. What it says of earlier ones is late.
func (s *servers) newer(ctx context.Context, url, unit string, a *apiv1.Assignment) bool {
	conn, err := s.opt.Conn(url)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewNameserverClient(conn).Watch(ctx, &apiv1.WatchRequest{Host: s.id, Apps: s.apps, Unit: unit})
	for err == nil {
		var is *apiv1.Assignment
		if is, err = stream.Recv(); err == nil && is.Address != "" && is.Address != a.Address && is.Epoch > a.Epoch {
			return true
		}
	}
	return false
}
