package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// heir is a standby server of a cluster that takes over after a while.
//
// Until then it names its predecessor, or forwards calls to it in vain.
type heir struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedJobsServer
	names *apiv1.Assignment
	takes time.Time

	mu    sync.Mutex
	asked int
}

func (h *heir) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (h *heir) GetJob(_ context.Context, r *apiv1.GetJobRequest) (*apiv1.Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if time.Now().Before(h.takes) {
		code := codes.FailedPrecondition
		if h.names.Address == "" {
			code = codes.Unavailable
		}
		s, err := status.New(code, "it is on another server").WithDetails(h.names)
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	}
	return &apiv1.Job{App: r.App, Name: r.Name}, nil
}

// mover is a server whose partition moves to another server during uploads of modules.
type mover struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedModulesServer
	fails int // number of uploads that fail with err
	err   error
	asked int
	got   []byte
}

func (m *mover) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (m *mover) PushModule(stream apiv1.Modules_PushModuleServer) error {
	m.asked, m.got = m.asked+1, nil
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&apiv1.PushModuleResponse{Module: &apiv1.Module{Name: "totals"}, Result: "created"})
		}
		if err != nil {
			return err
		}
		if m.got = append(m.got, part.GetChunk()...); m.asked <= m.fails && len(m.got) > 0 {
			return m.err
		}
	}
}

// TestUploadBeginsAgain checks that an interrupted upload starts again from its
// beginning, within the caller's time. A refused upload is not repeated.
func TestUploadBeginsAgain(t *testing.T) {
	goes := status.Error(codes.Unavailable, "the unit main goes to another server: connect again")
	for name, c := range map[string]struct {
		fails int
		err   error
		opt   sdk.Options
		want  error
		asked int
	}{
		"cut off twice":             {2, goes, sdk.Options{}, nil, 3},
		"cut off for ever":          {1 << 30, goes, sdk.Options{RetryFor: time.Second}, sdk.ErrUnavailable, 7},
		"who wants to know at once": {1, goes, sdk.Options{RetryFor: -1}, sdk.ErrUnavailable, 1},
		"refused":                   {1, status.Error(codes.InvalidArgument, "no module"), sdk.Options{}, sdk.ErrInvalid, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mover{fails: c.fails, err: c.err}
				g, ln := grpc.NewServer(), memconn.Listen(1<<16)
				apiv1.RegisterClusterServer(g, m)
				apiv1.RegisterModulesServer(g, m)
				go g.Serve(ln) //nolint:errcheck // ends with Stop
				defer g.Stop()
				c.opt.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }
				client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", c.opt)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close() //nolint:errcheck // every answer has come
				code := bytes.Repeat([]byte("wasm"), 200<<10)
				got, result, err := client.PushModule(t.Context(), sdk.Upload{Name: "totals", Version: "1", Code: code})
				if !errors.Is(err, c.want) || m.asked != c.asked {
					t.Errorf("%v after %d uploads, want %v after %d", err, m.asked, c.want, c.asked)
				}
				if err == nil && (got.GetName() != "totals" || result != sdk.Created || !bytes.Equal(m.got, code)) {
					t.Errorf("%v, %s, and the server has %d bytes of %d", got, result, len(m.got), len(code))
				}
			})
		})
	}
}

// TestTakeover checks that a call to a lost server of a cluster waits until another
// server has taken over. It does not wait forever, nor where no server can take over.
func TestTakeover(t *testing.T) {
	const gone, here = "127.0.0.2:1", "127.0.0.1:1"
	unit := &apiv1.Assignment{Server: "s", Address: gone, Unit: "main"}
	passing := &apiv1.Assignment{Unit: "main"}
	itself := &apiv1.Assignment{Server: "before", Address: here, Unit: "main"}
	for name, c := range map[string]struct {
		names    *apiv1.Assignment
		takes    time.Duration
		opt      sdk.Options
		patience time.Duration // of the caller
		err      error
		min, max time.Duration
	}{
		"somebody takes over":       {unit, 3300 * time.Millisecond, sdk.Options{}, time.Minute, nil, 3300 * time.Millisecond, 4 * time.Second},
		"nobody does":               {unit, time.Hour, sdk.Options{}, time.Minute, sdk.ErrUnavailable, 5 * time.Second, 8 * time.Second},
		"the caller does not wait":  {unit, time.Hour, sdk.Options{}, time.Second, context.DeadlineExceeded, time.Second, 2 * time.Second},
		"who wants to know at once": {unit, time.Hour, sdk.Options{RetryFor: -1}, time.Minute, sdk.ErrUnavailable, 0, time.Second},
		// A server that lost its disk has a new identity at its old address.
		"who names itself takes over":   {itself, 3300 * time.Millisecond, sdk.Options{}, time.Minute, nil, 3300 * time.Millisecond, 4 * time.Second},
		"who names itself never does":   {itself, time.Hour, sdk.Options{}, time.Minute, sdk.ErrUnavailable, 5 * time.Second, 8 * time.Second},
		"one that passes on takes over": {passing, 3300 * time.Millisecond, sdk.Options{}, time.Minute, nil, 3300 * time.Millisecond, 4 * time.Second},
		"one that passes on never does": {passing, time.Hour, sdk.Options{}, time.Minute, sdk.ErrUnavailable, 5 * time.Second, 8 * time.Second},
		"no cluster":                    {&apiv1.Assignment{Server: "s", Address: gone}, time.Hour, sdk.Options{}, time.Minute, sdk.ErrPrecondition, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &heir{names: c.names, takes: time.Now().Add(c.takes)}
				g, ln := grpc.NewServer(), memconn.Listen(1<<16)
				apiv1.RegisterClusterServer(g, h)
				apiv1.RegisterJobsServer(g, h)
				go g.Serve(ln) //nolint:errcheck // ends with Stop
				defer g.Stop()
				c.opt.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
					if address != here {
						t.Errorf("the client connects to %s", address)
						return nil, errors.New("connection refused")
					}
					return ln.DialContext(ctx)
				}
				client, err := sdk.Dial(t.Context(), "http://"+here, c.opt)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close() //nolint:errcheck // every answer has come
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				begin := time.Now()
				j, err := client.Job(ctx, "pay", "j")
				took := time.Since(begin)
				if !errors.Is(err, c.err) || err == nil && j.GetName() != "j" {
					t.Errorf("%v, %v, want %v", j, err, c.err)
				}
				if took < c.min || took > c.max {
					t.Errorf("it took %v, want %v to %v", took, c.min, c.max)
				}
				if h.asked > 200 {
					t.Errorf("the server was asked %d times", h.asked)
				}
			})
		})
	}
}
