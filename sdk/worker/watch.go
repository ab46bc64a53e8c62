package worker

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// watchAgain is the pause before the watch asks another server which server serves the
// worker.
const watchAgain = 500 * time.Millisecond

// watch closes the connection to a server once another server names a newer one. A server
// that is lost with its machine or network leaves its connections open until TCP gives
// up, half a minute later, while its ownership ends after seconds. at is the server's own
// URL, which watch does not ask; a is the assignment that names it. Closing the result
// closes the connection as well.
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
				conn.Close() //nolint:errcheck // its users get the error
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

// watching is a connection that ends when a newer server is known.
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

// newer waits for an answer of the server at url. It returns true when the server names a
// later assignment than a, and false when the call fails. It ignores earlier assignments.
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
